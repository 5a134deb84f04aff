/*
 * tombs.h - keys that were erased and that tiers below may still show: no lookup shows them.
 *
 * A key may have several tombs, one for each erase of it and one for each store of it that was being
 * written. A tomb names the tiers that it hides the key in, so that a tier that has erased a key takes
 * its next chunk while another one does not answer. The key is hidden in a tier until no tomb of it
 * names that tier.
 */
#ifndef KVT_TOMBS_H
#define KVT_TOMBS_H

#include "core/core.h"

/* A part of whatever hides the key, which owns it. */
struct kvt_tomb {
	struct kvt_keyed keyed; /* first */
	uint32_t tiers;         /* kvt_tomb_of() each that it hides the key in; may change while it stands */
};

#define KVT_TOMB_ALL UINT32_MAX

static inline uint32_t kvt_tomb_of(const struct kvt_lower *b)
{
	return 1u << (uint32_t)(b - b->k->lower);
}

/* Under lock. */
void kvt_tomb_add(struct kvt *k, struct kvt_tomb *tomb);
void kvt_tomb_remove(struct kvt *k, struct kvt_tomb *tomb);
/* Is the key hidden in this tier? locked: the caller has the lock; else it is taken if there are tombs at all. */
bool kvt_tomb_covers(const struct kvt_lower *b, const struct kvt_key *key, bool locked);

#endif
