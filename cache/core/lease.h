/*
 * lease.h - holds on chunks of L1, in the form of leases for callers.
 *
 * A lease comes from a pool and returns to it, with arrays that keep their largest size, so that a
 * get of chunks in L1 allocates nothing. Leases in use are in a list by age; the age of the first
 * shows forgotten holds.
 */
#ifndef KVT_LEASE_H
#define KVT_LEASE_H

#include <pthread.h>
#include <stdint.h>

#include "core/l1.h"

/* A lease for the core; the caller sees its first member. */
struct kvt_hold {
	struct kvt_lease lease;
	uint32_t *entries; /* of L1, one per chunk */
	struct kvt_view *views;
	struct kvt_segment *segments;
	size_t room, segment_room; /* allocated lengths of these arrays */
	int64_t begun_ns;
	struct kvt_hold *next, *prev; /* in use: by age; in the pool: only next */
};

struct kvt_leases {
	pthread_mutex_t lock;          /* guards the lists */
	struct kvt_hold *first, *last; /* out */
	struct kvt_hold *pool;
	size_t pooled;
};

void kvt_leases_init(struct kvt_leases *leases);
void kvt_leases_finish(struct kvt_leases *leases); /* frees the pool */

/* Takes an empty lease for up to n chunks, not yet in use. NULL: out of memory. */
struct kvt_hold *kvt_hold_take(struct kvt_leases *leases, size_t n);
/* Fills a lease from the first `count` entries, whose holds it then owns. tiers: of each chunk;
 * NULL: all L1. Returns the number of its chunks: fewer if one of them left L1 since its hold (a
 * get that began before an erase hands out no erased chunk), or if memory ran out; releases the
 * other holds. */
size_t kvt_hold_fill(struct kvt_leases *leases, struct kvt_l1 *l1, struct kvt_hold *hold,
	size_t count, const uint8_t *tiers, int64_t now_ns);
/* Releases the chunks of a filled lease, and gives the lease back. NULL is allowed. */
void kvt_hold_give(struct kvt_leases *leases, struct kvt_l1 *l1, struct kvt_hold *hold);

/* Age of the oldest lease in use, 0 if there is none. */
uint64_t kvt_leases_oldest(struct kvt_leases *leases, int64_t now_ns);

#endif
