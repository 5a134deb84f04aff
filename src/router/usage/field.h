/*
 * field.h - a user and what it has used as a field of a hash in Redis.
 *
 * A field's name is key, NUL, tenant, NUL, model; that of users without an entry is one byte, 1.
 * Its value is the counts of enum kvw_used_kind in decimal, with blanks between them. A version
 * that counts more appends numbers; missing ones are 0, and the ones behind are ignored.
 *
 * Threads: any.
 */
#ifndef KVW_USAGE_FIELD_H
#define KVW_USAGE_FIELD_H

#include "usage/table.h"

#define KVW_USAGE_FIELD_ROOM  (KVW_USER_TEXT_MOST + 2)
#define KVW_USAGE_COUNTS_ROOM (KVW_USED_KINDS * 21)

/* Write a name and a value; return their lengths. user: of an entry, so that its names are bounded;
 * NULL: those without one. */
size_t kvw_usage_field(const struct kvw_user *user, char out[KVW_USAGE_FIELD_ROOM]);
size_t kvw_usage_counts(const struct kvw_used *used, char out[KVW_USAGE_COUNTS_ROOM]);

/* Adds a field that was read. What other programs may have written is bounded, too. */
void kvw_usage_field_add(
	struct kvw_usage_table *table, struct kvw_slice field, struct kvw_slice value);

#endif
