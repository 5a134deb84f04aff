/*
 * barrier.h - what erases and drains wait for: a barrier ends when others have ended and the tiers
 * have synced.
 *
 * What is erased is unreachable before it waits (erase.c); a barrier is about durability.
 */
#ifndef KVT_BARRIER_H
#define KVT_BARRIER_H

#include "core/core.h"
#include "core/ops.h"

/* For these keys, which are copied; n 0: for none. NULL: no memory. Without lock. */
struct kvt_barrier *kvt_barrier_create(const struct kvt_key *keys, size_t n);
void kvt_barrier_destroy(struct kvt_barrier *b); /* one that was not begun */

/* --- under lock --- */

/* Begins an operation of this kind (KVT_OP_ERASE, KVT_OP_DRAIN), that goes to *op. KVT_OK: the
 * barrier is the cache's from now on and stays until kvt_barrier_begun. KVT_BUSY, KVT_ECANCELED: it
 * is still the caller's. */
enum kvt_status kvt_barrier_begin(struct kvt *k, struct kvt_barrier *b, uint32_t kind,
	const struct kvt_op_want *want, int64_t deadline_ns, struct kvt_op **op) KVT_MUST_CHECK;

/* Between the two, what the barrier is for. A drain waits for all stores that are under way. An erase
 * hides its keys, until the tiers have answered to the ERASE that it then submits to all of them;
 * true: one whose store another process owns only keeps it in memory until it has that. */
void kvt_barrier_await_stores(struct kvt *k, struct kvt_barrier *b);
void kvt_barrier_hide(struct kvt *k, struct kvt_barrier *b);
bool kvt_barrier_erase_lower(struct kvt *k, struct kvt_barrier *b) KVT_MUST_CHECK;

/* Another generation of a slot, for which the barrier waits; tenant: whose it is, or NULL. Without it the operation ends with
 * KVT_EIO. */
void kvt_barrier_raise(
	struct kvt *k, struct kvt_barrier *b, uint32_t slot, const struct kvt_tenant *tenant);
void kvt_barrier_raised(struct kvt *k, struct kvt_barrier *b, bool made); /* its end */

/* It may end from now on, or has ended already, then the operation too. It waits for stores that were
 * erased up to now. count: chunks that are erased; bad: a tier could not make it durable. */
void kvt_barrier_begun(struct kvt *k, struct kvt_barrier *b, uint64_t count, bool bad);

/* A store has ended; or one that was erased when `erased_by` barriers had begun is erased below. */
void kvt_barriers_stored(struct kvt *k, uint64_t store_number);
void kvt_barriers_erased(struct kvt *k, uint64_t erased_by);
/* Tries again what a tier refused to erase. *next_ns as kvt_lower_tick. */
size_t kvt_barriers_tick(struct kvt *k, int64_t now_ns, int64_t *next_ns);
/* Frees what is left; nothing is under way any more. */
void kvt_barriers_finish(struct kvt *k);

#endif
