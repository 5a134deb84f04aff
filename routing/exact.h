/*
 * exact.h - the part of the exact view that its owner, a strategy, uses. kvway/exact.h is the part
 * for feeds and all others.
 */
#ifndef KVW_ROUTING_EXACT_H
#define KVW_ROUTING_EXACT_H

#include "routing/claims.h"
#include "routing/kvindex.h"
#include "kvway/exact.h"

/* Creates a view, which the caller owns. A 16th of options->index_bytes is for parked blocks.
 * KVW_ENOMEM. */
enum kvw_err kvw_exact_create(
	const struct kvw_strategy_options *options, struct kvw_exact **out) KVW_MUST_CHECK;
void kvw_exact_destroy(struct kvw_exact *exact); /* NULL is allowed */

/* Returns the claims, which belong to the view. */
struct kvw_claims *kvw_exact_claims(const struct kvw_exact *exact);

/* Requests a purge of a worker that lost its cache. Any thread, constant time. Until a feed has
 * read the worker's stream again its coverages are BLIND at most; kvw_exact_tick purges the
 * index. */
void kvw_exact_purge(struct kvw_exact *exact, uint32_t worker);

/* Finds the holders of a chain's blocks, like kvw_kvindex_match. Any thread. */
void kvw_exact_match(const struct kvw_exact *exact, const struct kvw_exact_chain *chain,
	struct kvw_kvindex_hits *hits);

/* Returns how completely the worker's reports describe its cache, without a prompt. Any thread. */
enum kvw_knowledge kvw_exact_knowledge(const struct kvw_exact *exact, uint32_t worker);

/* Returns the number of blocks in an engine's own cache, by its events. Any thread. */
uint32_t kvw_exact_held(const struct kvw_exact *exact, uint32_t worker);

/* Fills the exact_* members of *out. Any thread. */
void kvw_exact_stats(const struct kvw_exact *exact, struct kvw_strategy_stats *out);

#endif
