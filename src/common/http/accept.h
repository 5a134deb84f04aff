/*
 * accept.h - which form of an answer a client prefers, by its Accept field (RFC 9110 section
 * 12.5.1).
 */
#ifndef KVW_ACCEPT_H
#define KVW_ACCEPT_H

#include "kvway/slice.h"

/* Returns the greatest weight, in thousandths, that a field's value gives to this media type in
 * this version: a parameter `version` must be absent or equal. 0: the value does not name the type,
 * or refuses it; ranges with a star do not count. */
unsigned kvw_accept_weight(struct kvw_slice value, struct kvw_slice type, struct kvw_slice version);

#endif
