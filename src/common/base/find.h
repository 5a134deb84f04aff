/*
 * find.h - searches a short text, as memmem(3), at half its cost in the few hundred bytes of an
 * answer.
 *
 * The search compares the text's second and last but one byte at 16 positions at a time (SSE2), and
 * the whole text where both match: its first and last byte are often quotes, which are frequent in
 * JSON. Without SSE2 the search is memmem.
 */
#ifndef KVW_FIND_H
#define KVW_FIND_H

#include <stddef.h>

#include "kvway/slice.h"

/* Returns the first occurrence of `what`, which has at least 4 bytes, in data[0..len), or NULL.
 * data may be NULL if len is 0. */
const char *kvw_find(const char *data, size_t len, struct kvw_slice what);

#endif
