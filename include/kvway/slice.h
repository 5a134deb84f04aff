/*
 * slice.h - a borrowed run of bytes, not NUL-terminated.
 *
 * The function that returns a slice documents how long it stays valid. data may be NULL only if len
 * is 0.
 */
#ifndef KVW_SLICE_H
#define KVW_SLICE_H

#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <strings.h>

struct kvw_slice {
	const char *data;
	size_t len;
};

#define KVW_SLICE(literal) ((struct kvw_slice){(literal), sizeof(literal) - 1})

static inline struct kvw_slice kvw_slice_of(const char *text)
{
	return (struct kvw_slice){text, text == NULL ? 0 : strlen(text)};
}

static inline bool kvw_slice_equal(struct kvw_slice a, struct kvw_slice b)
{
	return a.len == b.len && (a.len == 0 || memcmp(a.data, b.data, a.len) == 0);
}

/* Compares without regard to the case of ASCII letters, as for HTTP field names and tokens. */
static inline bool kvw_slice_equal_nocase(struct kvw_slice a, struct kvw_slice b)
{
	return a.len == b.len && (a.len == 0 || (((a.data[0] ^ b.data[0]) & ~0x20) == 0 &&
						      strncasecmp(a.data, b.data, a.len) == 0));
}

#endif
