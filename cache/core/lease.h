/*
 * lease.h - holds on chunks of L1, in the form of leases for callers.
 *
 * A lease comes from a pool and returns to it; its arrays keep their largest size, so that a get of
 * chunks in L1 allocates nothing. Leases in use are in a list by age; the age of the first shows
 * forgotten holds.
 */
#ifndef KVT_LEASE_H
#define KVT_LEASE_H

#include <pthread.h>
#include <stdint.h>

#include "core/l1.h"

/* A lease with the core's own members; the caller sees only the first one. */
struct kvt_hold {
	struct kvt_lease lease;
	uint32_t *entries; /* entries of L1, one per chunk */
	struct kvt_view *views;
	struct kvt_segment *segments;
	size_t room, segment_room; /* allocated lengths of `entries` and of the segments */
	int64_t begun_ns;
	struct kvt_hold *next, *prev; /* links: of a lease in use, by age; in the pool only next */
};

struct kvt_leases {
	pthread_mutex_t lock;          /* guards the lists */
	struct kvt_hold *first, *last; /* out */
	struct kvt_hold *pool;
	size_t pooled;
};

void kvt_leases_init(struct kvt_leases *leases);
void kvt_leases_finish(struct kvt_leases *leases); /* frees the pool */

/* Takes an empty lease with room for n chunks; it is not yet in use. NULL: out of memory. */
struct kvt_hold *kvt_hold_take(struct kvt_leases *leases, size_t n);
/* Fills a lease from the first `count` entries, and takes over their holds. tiers: the tier of each
 * chunk; NULL: L1 for all. Returns the number of chunks in the lease: fewer than `count` if a chunk
 * left L1 since it was held (so that a get that began before an erase returns no erased chunk), or
 * if memory ran out; the other holds are released. */
size_t kvt_hold_fill(struct kvt_leases *leases, struct kvt_l1 *l1, struct kvt_hold *hold,
	size_t count, const uint8_t *tiers, int64_t now_ns);
/* Releases the chunks of a filled lease, and returns the lease to the pool. NULL is allowed. */
void kvt_hold_give(struct kvt_leases *leases, struct kvt_l1 *l1, struct kvt_hold *hold);

/* Returns the age in nanoseconds of the oldest lease in use, 0 if there is none. */
uint64_t kvt_leases_oldest(struct kvt_leases *leases, int64_t now_ns);

#endif
