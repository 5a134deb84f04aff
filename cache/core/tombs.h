/*
 * tombs.h - keys that were erased and that tiers below may still show: no lookup shows them.
 *
 * A key may have several tombs, one for each erase of it and one for each store of it that was being
 * written; it is hidden until the last of them is removed.
 */
#ifndef KVT_TOMBS_H
#define KVT_TOMBS_H

#include "core/core.h"

/* A part of whatever hides the key, which owns it. */
struct kvt_tomb {
	struct kvt_keyed keyed; /* first */
};

/* Under lock. */
void kvt_tomb_add(struct kvt *k, struct kvt_tomb *tomb);
void kvt_tomb_remove(struct kvt *k, struct kvt_tomb *tomb);
/* locked: the caller has the lock; else it is taken if there are tombs at all. */
bool kvt_tomb_covers(struct kvt *k, const struct kvt_key *key, bool locked);

#endif
