/*
 * policy_lmetric.c - prefill that the worker would have to do, times its requests.
 *
 * The product of the new prefill tokens if the request went there and the batch size with it.
 * Sources differ on whether tokens that wait there already count, and the parameter is their
 * weight: 1 as the paper's figures come out, 0 as SGLang's port of it does.
 */
#include "bench/load/mem.h"
#include "bench/replay/replay_policy.h"

#include <stdlib.h>

struct lmetric {
	const struct kvb_fleet *fleet;
	uint64_t random;
	double waiting; /* weight of the tokens that wait at a worker */
};

static void *create(const struct kvb_policy_env *env)
{
	struct lmetric *lm = kvb_alloc(1, sizeof(*lm));

	lm->fleet = env->fleet;
	lm->random = env->seed;
	lm->waiting = env->param;
	return lm;
}

static uint32_t pick(void *self, uint32_t job, int64_t now_ns)
{
	struct lmetric *lm = self;
	const struct kvb_job *j = &lm->fleet->jobs->items[job];
	double costs[KVB_MAX_WORKERS];

	(void)now_ns;
	for (uint32_t w = 0; w < lm->fleet->options.workers; w++) {
		const struct kvb_sent *sent = &lm->fleet->workers[w].sent;
		double fresh = j->input - kvb_fleet_hit(lm->fleet, w, j);

		costs[w] = (fresh + lm->waiting * (double)sent->prefill_tokens) *
			   (sent->inflight + 1.0);
	}
	return kvb_lowest(costs, lm->fleet->options.workers, &lm->random);
}

const struct kvb_policy_ops kvb_lmetric_ops = {.create = create, .pick = pick, .destroy = free};
