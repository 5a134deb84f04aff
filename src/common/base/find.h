/*
 * find.h - a short text in bytes, as memmem(3) finds it, at half the cost in the few hundred bytes
 * of an answer.
 *
 * The second byte of the text and the last but one are compared at 16 places at a time (SSE2), and
 * the whole text where both are right: its first and its last byte are quotes often, as many bytes
 * around it are. Without SSE2 it is memmem.
 */
#ifndef KVW_FIND_H
#define KVW_FIND_H

#include <stddef.h>

#include "kvway/slice.h"

/* The first place of `what`, at least 4 bytes, in data[0..len), or NULL. data may be NULL if len
 * is 0. */
const char *kvw_find(const char *data, size_t len, struct kvw_slice what);

#endif
