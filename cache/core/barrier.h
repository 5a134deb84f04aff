/*
 * barrier.h - erases and drains: what ends when others have ended and the tiers have synced.
 *
 * An erase is effective when its begin function returns: chunks leave L1, loads and stores of them
 * come to nothing, and a tomb covers each key that a tier below may still show until it does not.
 * What the rest is about is durability.
 */
#ifndef KVT_BARRIER_H
#define KVT_BARRIER_H

#include "core/core.h"
#include "core/ops.h"

/* A key whose chunk in tiers below is not to be seen. */
struct kvt_tomb {
	struct kvt_keyed keyed; /* first */
};

/* Under lock. */
void kvt_tomb_add(struct kvt *k, struct kvt_tomb *tomb);
void kvt_tomb_remove(struct kvt *k, struct kvt_tomb *tomb);
/* locked: the caller has the lock; else it is taken if there are tombs at all. */
bool kvt_tomb_covers(struct kvt *k, const struct kvt_key *key, bool locked);

/* What is to be erased. */
struct kvt_victims {
	const struct kvt_key *keys; /* NULL: by tenant, or all */
	size_t n;
	const struct kvt_tenant *tenant;
};

/* Begins an operation, without lock. victims NULL: a drain. A synchronous op goes to *op, for
 * kvt_op_wait; an asynchronous one may be gone already and is not to be touched. KVT_BUSY,
 * KVT_ENOMEM. */
enum kvt_status kvt_barrier_begin(struct kvt *k, const struct kvt_victims *victims,
	uint64_t timeout_ns, const struct kvt_op_want *want, struct kvt_op **op) KVT_MUST_CHECK;

/* What barriers wait for; under lock. */
void kvt_barrier_done(struct kvt *k, struct kvt_job *job);
void kvt_barriers_stored(struct kvt *k, uint64_t store_number);
void kvt_barriers_erased(struct kvt *k, uint64_t erased_by);
/* Number for a store that is marked as erased now. */
uint64_t kvt_barriers_now(struct kvt *k);
/* Tries again what a tier refused to erase. *next_ns as kvt_lower_tick. */
size_t kvt_barriers_tick(struct kvt *k, int64_t now_ns, int64_t *next_ns);
/* Frees what is left; nothing is under way any more. */
void kvt_barriers_finish(struct kvt *k);

#endif
