/*
 * loads.h - loads of chunks from a lower tier into L1.
 */
#ifndef KVT_LOADS_H
#define KVT_LOADS_H

#include "core/core.h"

/* A get's wait for one chunk. `resolve` is called once, with `lock` held, with the chunk's entry in
 * L1, on which the waiter then has a hold, or with KVT_NO_ENTRY if the chunk will not come. */
struct kvt_waiter {
	struct kvt_load *load; /* NULL: no wait */
	uint64_t bytes;        /* size of the chunk, known once the load is requested */
	uint32_t get;          /* as in a job */
	struct kvt_waiter *next, *prev;
	void (*resolve)(struct kvt *k, struct kvt_waiter *waiter, uint32_t entry, uint8_t tier);
};

/* The caller of each function below holds `lock`. */

/*
 * Requests a chunk that is not in L1; kvt_loads_pump starts the load. waiter NULL: a prefetch,
 * which is refused with KVT_BUSY if it would exceed the limit of bytes under way. KVT_MISS: no tier
 * has the chunk.
 */
enum kvt_status kvt_load_want(
	struct kvt *k, const struct kvt_key *key, struct kvt_waiter *waiter) KVT_MUST_CHECK;
/* Ends the wait. A load that no get waits for is dropped if it has not begun. */
void kvt_load_leave(struct kvt *k, struct kvt_waiter *waiter);

void kvt_loads_pump(struct kvt *k);
/* Ends all waits for this tier; loads that are being read go on. */
void kvt_loads_abandon(struct kvt *k, const struct kvt_lower *b);
/* Discards the results of loads of these chunks. keys NULL: of all chunks of `tenant`, or, if that
 * is NULL too, of all. */
void kvt_loads_erase(
	struct kvt *k, const struct kvt_key *keys, size_t n, const struct kvt_tenant *tenant);
void kvt_loads_erase_slots(struct kvt *k, const struct kvt_slot_set *slots);
/* Drops loads that have not begun, because the handle is closing. */
void kvt_loads_stop(struct kvt *k);

#endif
