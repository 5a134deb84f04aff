/*
 * loads.h - loads of chunks from a lower tier into L1.
 */
#ifndef KVT_LOADS_H
#define KVT_LOADS_H

#include "core/core.h"

/* A get's wait for one chunk. `resolve` is called once, under lock, with the entry of L1 on which
 * the waiter then has a hold, or KVT_NO_ENTRY: the chunk will not come. */
struct kvt_waiter {
	struct kvt_load *load; /* NULL: no wait */
	uint64_t bytes;        /* bytes of the chunk, once it is wanted */
	uint32_t get;          /* as in a job */
	struct kvt_waiter *next, *prev;
	void (*resolve)(struct kvt *k, struct kvt_waiter *waiter, uint32_t entry, uint8_t tier);
};

/* All functions below need the lock. */

/*
 * Wants a chunk that is not in L1; kvt_loads_pump starts the load. waiter NULL: a prefetch, which
 * is refused with KVT_BUSY if it would exceed the bytes under way. KVT_MISS: no tier has the chunk.
 */
enum kvt_status kvt_load_want(
	struct kvt *k, const struct kvt_key *key, struct kvt_waiter *waiter) KVT_MUST_CHECK;
/* Ends the wait. A load without waiters that has not begun is dropped. */
void kvt_load_leave(struct kvt *k, struct kvt_waiter *waiter);

void kvt_loads_pump(struct kvt *k);
/* Ends all waits for this tier; loads under way go on. */
void kvt_loads_abandon(struct kvt *k, const struct kvt_lower *b);
/* Makes loads of these chunks bring nothing back. keys NULL: of a tenant; that NULL, too: of
 * all. */
void kvt_loads_erase(
	struct kvt *k, const struct kvt_key *keys, size_t n, const struct kvt_tenant *tenant);
void kvt_loads_erase_slots(struct kvt *k, const struct kvt_slot_set *slots);
/* Drops loads that have not begun: the handle is closing. */
void kvt_loads_stop(struct kvt *k);

#endif
