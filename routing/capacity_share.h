/*
 * capacity_share.h - the share of a worker's KV cache that predictions assume for prompts.
 *
 * The router's view of a worker is as large as the KV cache that the worker reports. The engine may
 * keep less for prompts: running requests hold blocks, other routers send requests, too, block
 * sizes differ from the assumed ones. Then the engine has evicted blocks that the view still has,
 * and its answers show that: fewer cached tokens (usage.prompt_tokens_details.cached_tokens) than
 * predicted. Each such answer lowers the worker's share by missing / predicted / 32 of itself; a
 * correct answer raises it by 1/256 of the difference to 1, an answer with more cached tokens than
 * predicted by 1/64. The share never falls below a quarter. Answers without cached_tokens are
 * ignored: unknown is not 0.
 *
 * With one wrong hit in fifty, as after cancelled requests, the share stays near 0.86; with one in
 * ten near one half; for a worker that really keeps less the share falls until predicted hits are
 * right.
 *
 * Threads: any. The share is one atomic float; of two answers at the same moment one may be lost.
 */
#ifndef KVW_CAPACITY_SHARE_H
#define KVW_CAPACITY_SHARE_H

#include <stdatomic.h>

#include "kvway/route.h"

#define KVW_CAPACITY_SHARE_LEAST 0.25

struct kvw_capacity_share {
	/* shares by worker id, from KVW_CAPACITY_SHARE_LEAST to 1 */
	_Atomic float share[KVW_MAX_WORKERS];
};

void kvw_capacity_share_init(struct kvw_capacity_share *shares);

/* Returns how many tokens a worker's view may hold: the worker's share of the capacity that it
 * reports. A share below 1 leaves at least 1 token. */
static inline uint64_t kvw_capacity_share_capacity(
	const struct kvw_capacity_share *shares, uint32_t worker, uint64_t reported)
{
	double share = atomic_load_explicit(&shares->share[worker], memory_order_relaxed);
	uint64_t capacity = (uint64_t)((double)reported * share);

	return share >= 1 ? reported : capacity > 0 ? capacity : 1;
}

/* Learns from one answer: tokens of its prompt, predicted and real cached tokens. */
void kvw_capacity_share_learn(struct kvw_capacity_share *shares, uint32_t worker, uint32_t prompt,
	uint32_t predicted, uint32_t actual);

/* Forgets what was learned about a worker whose cache was lost. */
void kvw_capacity_share_restart(struct kvw_capacity_share *shares, uint32_t worker);

#endif
