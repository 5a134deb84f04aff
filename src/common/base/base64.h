/*
 * base64.h - base64 (RFC 4648), read strictly: no padding, no whitespace, no loose bits, so that
 * the same bytes can be written in one way only.
 *
 * Threads: any.
 */
#ifndef KVW_BASE64_H
#define KVW_BASE64_H

#include <stdbool.h>
#include <stddef.h>

#include "kvway/slice.h"

enum kvw_base64 {
	KVW_BASE64,    /* '+' and '/' */
	KVW_BASE64_URL /* '-' and '_' */
};

/* Writes the bytes of text to out and sets *len. Returns false if the text is not base64 of this
 * kind, or its bytes do not fit into room; out may have been written to. Callers remove padding
 * themselves. */
bool kvw_base64_read(
	struct kvw_slice text, enum kvw_base64 kind, unsigned char *out, size_t room, size_t *len);

#endif
