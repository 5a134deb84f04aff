/* policy_least_requests.c - the worker with the fewest requests in flight; ties at random. */
#include "bench/load/mem.h"
#include "bench/replay/replay_policy.h"

#include <stdlib.h>

struct least_requests {
	const struct kvb_fleet *fleet;
	uint64_t random;
};

static void *create(const struct kvb_policy_env *env)
{
	struct least_requests *lr = kvb_alloc(1, sizeof(*lr));

	lr->fleet = env->fleet;
	lr->random = env->seed;
	return lr;
}

static uint32_t pick(void *self, uint32_t job, int64_t now_ns)
{
	struct least_requests *lr = self;
	double costs[KVB_MAX_WORKERS];

	(void)job;
	(void)now_ns;
	for (uint32_t w = 0; w < lr->fleet->options.workers; w++)
		costs[w] = lr->fleet->workers[w].sent.inflight;
	return kvb_lowest(costs, lr->fleet->options.workers, &lr->random);
}

const struct kvb_policy_ops kvb_least_requests_ops = {
	.create = create, .pick = pick, .destroy = free};
