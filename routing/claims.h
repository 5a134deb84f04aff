/*
 * claims.h - blocks that a worker will hold once it has begun the requests it was sent.
 *
 * An engine publishes a block when it schedules it. Until then, which may be seconds in a queue,
 * the exact view does not know that the block is on its way, and a burst of requests with one new
 * prefix would be scattered over all workers. So a pick claims the blocks that its worker lacks,
 * for about as long as the worker is predicted to need for them, and later picks find them as if
 * they were there. What an event confirms meanwhile needs no claim.
 *
 * A claim is one word of 64 bits in a table of fixed size: worker, end and 32 bits of the block's
 * key; 14 more bits are the place in the table, eight claims to a cache line. Picks write words
 * without locks; the last one wins, a claim that is overwritten or forgotten is a hit less, and a
 * wrong one (about 2^-46 per look) a badly predicted request.
 *
 * Keys name all that comes before them, so of long prompts not every block is claimed: each of the
 * first KVW_CLAIMS_EACH, then every KVW_CLAIMS_STRIDE-th.
 *
 * Threads: any, all functions.
 */
#ifndef KVW_CLAIMS_H
#define KVW_CLAIMS_H

#include "routing/kvindex.h"
#include "kvway/exact.h"

#define KVW_CLAIMS_EACH   1024u
#define KVW_CLAIMS_STRIDE 16u
#define KVW_CLAIMS_PROMPT 2048u                /* most claims of one pick */
#define KVW_CLAIMS_NS     INT64_C(60000000000) /* longest life of a claim */

struct kvw_claims;

enum kvw_err kvw_claims_create(uint64_t seed, struct kvw_claims **out) KVW_MUST_CHECK;
void kvw_claims_destroy(struct kvw_claims *claims); /* NULL is allowed */

/* The worker will hold blocks [held, chain->count) of the chain. Claims end after about ns. */
void kvw_claims_make(struct kvw_claims *claims, uint32_t worker,
	const struct kvw_exact_chain *chain, uint32_t held, int64_t now_ns, int64_t ns);

/* The worker will not hold them after all.
 * Claims of other requests for the same blocks go as well. */
void kvw_claims_drop(struct kvw_claims *claims, uint32_t worker,
	const struct kvw_exact_chain *chain, uint32_t held);

/* Carries *hits, of this chain, on through what is claimed, as blocks of KVW_TIER_DEVICE. Writes
 * nothing else. */
void kvw_claims_extend(const struct kvw_claims *claims, const struct kvw_exact_chain *chain,
	int64_t now_ns, struct kvw_kvindex_hits *hits);

/* The worker's cache is lost, and what it was sent. Constant time. */
void kvw_claims_forget(struct kvw_claims *claims, uint32_t worker);

#endif
