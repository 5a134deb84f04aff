/*
 * barrier.h - lets erases and drains wait: a barrier ends when other work has ended and the tiers
 * have synced.
 *
 * Erased chunks are unreachable before the barrier waits (erase.c); a barrier is about durability
 * only.
 */
#ifndef KVT_BARRIER_H
#define KVT_BARRIER_H

#include "core/core.h"
#include "core/ops.h"

/* Creates a barrier for these keys, which are copied; n 0: for no keys. NULL: out of memory. The
 * caller does not hold `lock`. */
struct kvt_barrier *kvt_barrier_create(const struct kvt_key *keys, size_t n);
void kvt_barrier_destroy(struct kvt_barrier *b); /* frees a barrier that was not begun */

/* --- under lock --- */

/* Begins an operation of this kind (KVT_OP_ERASE or KVT_OP_DRAIN), stored in *op. KVT_OK: the cache
 * owns the barrier from now on, and the barrier stays valid at least until kvt_barrier_begun.
 * KVT_BUSY, KVT_ECANCELED: the caller still owns the barrier. */
enum kvt_status kvt_barrier_begin(struct kvt *k, struct kvt_barrier *b, uint32_t kind,
	const struct kvt_op_want *want, int64_t deadline_ns, struct kvt_op **op) KVT_MUST_CHECK;

/* The following calls, between kvt_barrier_begin and kvt_barrier_begun, say what the barrier waits
 * for. A drain waits for all stores under way. An erase hides its keys until every tier has
 * answered the ERASE request that is then sent to it. Returns true if a tier whose store another
 * process owns can only remember the erase in memory. */
void kvt_barrier_await_stores(struct kvt *k, struct kvt_barrier *b);
void kvt_barrier_hide(struct kvt *k, struct kvt_barrier *b);
bool kvt_barrier_erase_lower(struct kvt *k, struct kvt_barrier *b) KVT_MUST_CHECK;

/* Makes the barrier wait until a slot has a new generation. tenant: the slot's tenant, or NULL. If
 * the new generation is not granted, the operation ends with KVT_EIO. */
void kvt_barrier_raise(
	struct kvt *k, struct kvt_barrier *b, uint32_t slot, const struct kvt_tenant *tenant);
void kvt_barrier_raised(struct kvt *k, struct kvt_barrier *b, bool made); /* its end */

/* Ends the setup: the barrier may end from now on, or has ended already, and its operation with it.
 * The barrier waits for all stores that were erased before this call. count: erased chunks; bad: a
 * tier could not make the erase durable. */
void kvt_barrier_begun(struct kvt *k, struct kvt_barrier *b, uint64_t count, bool bad);

/* A store has ended, or its erase in the tier has; `store_number` numbers the store, and
 * `erased_by` the last barrier that had begun when the store was erased. */
void kvt_barriers_stored(struct kvt *k, uint64_t store_number);
void kvt_barriers_erased(struct kvt *k, uint64_t erased_by);
/* Sends erases again that a tier refused. *next_ns as in kvt_lower_tick. */
size_t kvt_barriers_tick(struct kvt *k, int64_t now_ns, int64_t *next_ns);
/* Frees the remaining barriers; no request may be under way. */
void kvt_barriers_finish(struct kvt *k);

#endif
