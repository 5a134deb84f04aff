/*
 * names.h - names of chunks below memory: a key under the present generation of its tenant (chunk/slots.h).
 *
 * Without a shared tier that has a table of generations, a name is the key. Any thread.
 */
#ifndef KVT_NAMES_H
#define KVT_NAMES_H

#include "core/core.h"

/* The name of a key in every tier below memory; may be `key` itself. False: the table has not been read yet. */
bool kvt_name_below(struct kvt *k, const struct kvt_key *key, struct kvt_key *name);
/* The key of a name of the present generation. */
void kvt_name_above(struct kvt *k, const struct kvt_key *name, struct kvt_key *key);
bool kvt_names_known(struct kvt *k);

/* Returns whether memory may be read: erases up to l2.seen_time ago are known, or the question about them has just
 * failed. False: the caller asks first. */
bool kvt_names_fresh(struct kvt *k);
/* Returns whether this tier may be read. The shared tier only if erases are known; others also while the shared one
 * cannot be reached. NULL: one of the others. */
bool kvt_names_show(struct kvt *k, const struct kvt_lower *b);

#endif
