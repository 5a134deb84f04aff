/*
 * claims.h - blocks that a worker will hold once it has begun the requests sent to it.
 *
 * An engine publishes a block when it schedules it. Until then, which may be seconds in a queue,
 * the exact view does not know that the block is on its way, and a burst of requests with one new
 * prefix would be scattered over all workers. So a pick claims the blocks that its worker lacks,
 * for about the time that the worker is predicted to need for them, and later picks count claimed
 * blocks as held. A block that an event confirms needs no claim any more.
 *
 * A claim is one word of 64 bits in a table of fixed size: worker, end and 32 bits of the block's
 * key; 14 more bits are the position in the table, eight claims to a cache line. Picks write words
 * without locks; the last one wins. An overwritten or forgotten claim costs a hit, a false match
 * (about 2^-46 per look-up) a bad prediction.
 *
 * A block's key covers all blocks before it, so picks need not claim every block of a long prompt:
 * each of the first KVW_CLAIMS_EACH, then every KVW_CLAIMS_STRIDE-th.
 *
 * Threads: any, all functions.
 */
#ifndef KVW_CLAIMS_H
#define KVW_CLAIMS_H

#include "routing/kvindex.h"
#include "kvway/exact.h"

#define KVW_CLAIMS_EACH   1024u
#define KVW_CLAIMS_STRIDE 16u
#define KVW_CLAIMS_PROMPT 2048u                /* limit of blocks that one pick claims */
#define KVW_CLAIMS_NS     INT64_C(60000000000) /* longest time that a claim lasts */

struct kvw_claims;

enum kvw_err kvw_claims_create(uint64_t seed, struct kvw_claims **out) KVW_MUST_CHECK;
void kvw_claims_destroy(struct kvw_claims *claims); /* NULL is allowed */

/* Claims blocks [held, chain->count) of the chain for the worker. The claims end after about ns. */
void kvw_claims_make(struct kvw_claims *claims, uint32_t worker,
	const struct kvw_exact_chain *chain, uint32_t held, int64_t now_ns, int64_t ns);

/* Drops claims of blocks that the worker will not hold after all. Other requests' claims of the
 * same blocks are dropped, too. */
void kvw_claims_drop(struct kvw_claims *claims, uint32_t worker,
	const struct kvw_exact_chain *chain, uint32_t held);

/* Extends *hits, of this chain, by the claimed blocks, as blocks of KVW_TIER_DEVICE. */
void kvw_claims_extend(const struct kvw_claims *claims, const struct kvw_exact_chain *chain,
	int64_t now_ns, struct kvw_kvindex_hits *hits);

/* Forgets all claims of a worker that lost its cache. Constant time. */
void kvw_claims_forget(struct kvw_claims *claims, uint32_t worker);

#endif
