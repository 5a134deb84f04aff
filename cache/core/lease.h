/*
 * lease.h - holds on chunks of L1, as callers see them.
 *
 * A lease is taken from a pool and goes back to it, with arrays that grow to what was once needed,
 * so that a get of chunks in L1 allocates nothing. Leases that are out hang in a list by age,
 * whose first one is the gauge for holds that were forgotten.
 */
#ifndef KVT_LEASE_H
#define KVT_LEASE_H

#include <pthread.h>
#include <stdint.h>

#include "core/l1.h"

/* A lease as the core has it; the caller sees its first member. */
struct kvt_hold {
	struct kvt_lease lease;
	uint32_t *entries; /* of L1, one per chunk */
	struct kvt_view *views;
	struct kvt_segment *segments;
	size_t room, segment_room; /* of these arrays */
	int64_t begun_ns;
	struct kvt_hold *next, *prev; /* out: by age; in the pool: next only */
};

struct kvt_leases {
	pthread_mutex_t lock;          /* guards the lists */
	struct kvt_hold *first, *last; /* out */
	struct kvt_hold *pool;
	size_t pooled;
};

void kvt_leases_init(struct kvt_leases *leases);
void kvt_leases_finish(struct kvt_leases *leases); /* frees the pool */

/* A lease for up to n chunks, not yet out and without any. NULL: out of memory. */
struct kvt_hold *kvt_hold_take(struct kvt_leases *leases, size_t n);
/* Fills it from the first `count` entries, whose holds it then owns. tiers: of each chunk; NULL:
 * all L1. Returns how many chunks it has: fewer if one of them left L1 since it was held (a get
 * that began before an erase does not hand out what was erased), or if memory ran out; the holds
 * of the rest are released. */
size_t kvt_hold_fill(struct kvt_leases *leases, struct kvt_l1 *l1, struct kvt_hold *hold,
	size_t count, const uint8_t *tiers, int64_t now_ns);
/* Releases its chunks, if it is filled, and gives it back. NULL is allowed. */
void kvt_hold_give(struct kvt_leases *leases, struct kvt_l1 *l1, struct kvt_hold *hold);

/* Age of the oldest lease that is out, 0 if there is none. */
uint64_t kvt_leases_oldest(struct kvt_leases *leases, int64_t now_ns);

#endif
