/*
 * policy_cost.c - kvway's formula with everything known: rates, caches, attention.
 *
 *     Q + p + omega p n + c T          T: prompt tokens in flight
 *
 * The parameter is the weight of the last two: 0 leaves the least predicted time to first token, 1
 * is what kvway would do if it had nothing to learn.
 */
#include "bench/load/mem.h"
#include "bench/replay/replay_policy.h"

#include <stdlib.h>

struct cost {
	struct kvb_fleet *fleet;
	uint64_t random;
	double omega, context_ns;
};

static void *create(const struct kvb_policy_env *env)
{
	struct cost *cost = kvb_alloc(1, sizeof(*cost));

	cost->fleet = (struct kvb_fleet *)env->fleet;
	cost->random = env->seed;
	cost->omega = env->param * env->config->routing_omega;
	cost->context_ns = env->param * env->config->routing_context_ns;
	return cost;
}

static uint32_t pick(void *self, uint32_t job, int64_t now_ns)
{
	struct cost *cost = self;
	const struct kvb_job *j = &cost->fleet->jobs->items[job];
	double costs[KVB_MAX_WORKERS];

	for (uint32_t w = 0; w < cost->fleet->options.workers; w++) {
		struct kvb_sent *sent = &cost->fleet->workers[w].sent;
		uint32_t hit = kvb_fleet_hit(cost->fleet, w, j);
		double prefill = kvb_fleet_prefill_ns(cost->fleet, w, j, hit);

		costs[w] = (double)kvw_load_queue_ns(&sent->load, now_ns) +
			   prefill * (1 + cost->omega * sent->inflight) +
			   cost->context_ns * kvw_load_context(&sent->load);
	}
	return kvb_lowest(costs, cost->fleet->options.workers, &cost->random);
}

const struct kvb_policy_ops kvb_cost_ops = {.create = create, .pick = pick, .destroy = free};
