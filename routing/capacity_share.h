/*
 * capacity_share.h - how much of a worker's cache predictions may count on.
 *
 * A worker's view is as large as the KV cache that it tells of. What it really keeps for prompts
 * can be less: running requests hold blocks, other routers send to it too, its sizes are not what
 * we think. Then it has evicted what the view still holds, and answers say so: fewer cached
 * tokens (usage.prompt_tokens_details.cached_tokens) than predicted. Each such answer shrinks the
 * worker's share of its capacity by the part that was missing / 32, each good one lets it grow by
 * 1/256 of what it lacks, and one that found more than predicted by 1/64. The share never falls
 * below a quarter. An answer that does not tell is no answer: unknown is not 0.
 *
 * With one wrong hit in fifty, as cancelled requests cause them, the share stays near 0.86; at one
 * in ten it is one half; a worker that really holds less goes down until hits come true.
 *
 * Threads: any. The share is one atomic float; of two answers at the same moment one may be lost.
 */
#ifndef KVW_CAPACITY_SHARE_H
#define KVW_CAPACITY_SHARE_H

#include <stdatomic.h>

#include "kvway/route.h"

#define KVW_CAPACITY_SHARE_LEAST 0.25

struct kvw_capacity_share {
	_Atomic float share[KVW_MAX_WORKERS]; /* by worker id, KVW_CAPACITY_SHARE_LEAST to 1 */
};

void kvw_capacity_share_init(struct kvw_capacity_share *truth);

/* Capacity that a worker's view may have; at least 1. */
static inline uint64_t kvw_capacity_share_capacity(
	const struct kvw_capacity_share *truth, uint32_t worker, uint64_t told)
{
	double share = atomic_load_explicit(&truth->share[worker], memory_order_relaxed);
	uint64_t capacity = (uint64_t)((double)told * share);

	return share >= 1 ? told : capacity > 0 ? capacity : 1;
}

/* One answer: tokens of its prompt, how many were predicted to be cached, how many were. */
void kvw_capacity_share_learn(struct kvw_capacity_share *truth, uint32_t worker, uint32_t prompt, uint32_t predicted,
	uint32_t actual);

/* The worker's cache was lost: what it taught was of the old one. */
void kvw_capacity_share_restart(struct kvw_capacity_share *truth, uint32_t worker);

#endif
