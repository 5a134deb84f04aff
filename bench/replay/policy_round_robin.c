/* policy_round_robin.c - one worker after the other. */
#include "bench/load/mem.h"
#include "bench/replay/replay_policy.h"

#include <stdlib.h>

struct round_robin {
	uint32_t workers, next;
};

static void *create(const struct kvb_policy_env *env)
{
	struct round_robin *rr = kvb_alloc(1, sizeof(*rr));

	rr->workers = env->fleet->options.workers;
	return rr;
}

static uint32_t pick(void *self, uint32_t job, int64_t now_ns)
{
	struct round_robin *rr = self;

	(void)job;
	(void)now_ns;
	return rr->next++ % rr->workers;
}

const struct kvb_policy_ops kvb_round_robin_ops = {.create = create, .pick = pick, .destroy = free};
