/*
 * names.h - the names of chunks in lower tiers: a key under the present generation of its tenant
 * (chunk/slots.h).
 *
 * Without a shared tier that has a table of generations, a name is the key. Any thread.
 */
#ifndef KVT_NAMES_H
#define KVT_NAMES_H

#include "core/core.h"

/* Computes the name of a key in every lower tier; `name` may be `key` itself. False: the table has
 * not been read yet. */
bool kvt_name_below(struct kvt *k, const struct kvt_key *key, struct kvt_key *name);
/* Computes the key of a name that was made with the present generation. */
void kvt_name_above(struct kvt *k, const struct kvt_key *name, struct kvt_key *key);
bool kvt_names_known(struct kvt *k);

/* Returns whether memory may be read: erases up to l2.seen_time ago are known, or the question
 * about them has just failed. False: the caller asks for changes first. */
bool kvt_names_fresh(struct kvt *k);
/* Returns whether this tier may be read: a shared tier only if erases are known; a local tier also
 * while the shared one cannot be reached. NULL: any local tier. */
bool kvt_names_show(struct kvt *k, const struct kvt_lower *b);

#endif
