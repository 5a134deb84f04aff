/*
 * direct.h - finds out whether O_DIRECT has an effect on a file, and whether a sync of the file
 * reaches a device.
 */
#ifndef KVT_DIRECT_H
#define KVT_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* a file that needs a larger alignment counts as not direct */
#define KVT_DIRECT_MAX_ALIGNMENT 65536u

/* How a file that was opened with O_DIRECT really behaves. */
struct kvt_direct {
	bool direct;
	/* alignment that offsets, lengths and memory need, a power of two; 1 if the file is not
	 * direct */
	uint32_t alignment;
	const char *reason; /* static text: why the file is not direct; "" if it is */
};

void kvt_direct_look(int fd, struct kvt_direct *out);

/* Returns false for file systems that are in memory only. */
bool kvt_direct_durable(int fd);

#endif
