/*
 * tombs.h - keys that were erased and that tiers below may still show: each tomb hides one key from
 * lookups.
 *
 * A key may have several tombs, one for each erase of it and one for each store of it that was
 * being written. A tomb names the tiers in which it hides the key, so that a tier that has erased
 * the key accepts a new chunk under it while another tier does not answer. The key is hidden in a
 * tier until no tomb of it names that tier.
 */
#ifndef KVT_TOMBS_H
#define KVT_TOMBS_H

#include "core/core.h"

/* A member of the struct that hides the key (a barrier or a store), which owns the memory. */
struct kvt_tomb {
	struct kvt_keyed keyed; /* first */
	/* bits (kvt_tomb_of) of the tiers in which the key is hidden; may change while the tomb is
	 * in the table */
	uint32_t tiers;
};

#define KVT_TOMB_ALL UINT32_MAX

static inline uint32_t kvt_tomb_of(const struct kvt_lower *b)
{
	return 1u << (uint32_t)(b - b->k->lower);
}

/* Under lock. */
void kvt_tomb_add(struct kvt *k, struct kvt_tomb *tomb);
void kvt_tomb_remove(struct kvt *k, struct kvt_tomb *tomb);
/* Returns whether the key is hidden in this tier. locked: the caller holds the lock; otherwise it
 * is taken if there are any tombs. */
bool kvt_tomb_covers(const struct kvt_lower *b, const struct kvt_key *key, bool locked);

#endif
