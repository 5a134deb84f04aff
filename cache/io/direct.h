/*
 * direct.h - the effect of O_DIRECT on a file, and whether a sync of the file reaches a device.
 */
#ifndef KVT_DIRECT_H
#define KVT_DIRECT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KVT_DIRECT_MAX_ALIGNMENT 65536u /* a larger alignment counts as "not direct" */

/* The real behaviour of a file that was opened with O_DIRECT. */
struct kvt_direct {
	bool direct;
	/* alignment of offsets, lengths and memory: a power of two; 1 if not direct */
	uint32_t alignment;
	const char *reason; /* why not direct, static; "" if it is */
};

void kvt_direct_look(int fd, struct kvt_direct *out);

/* False for file systems in memory. */
bool kvt_direct_durable(int fd);

#endif
