/*
 * policy_round_robin.c - one worker after the other.
 *
 * Where workers have roles, one decoder after the other, and for each prompt one prefiller after the
 * other, as vLLM's example proxy does.
 */
#include "bench/load/mem.h"
#include "bench/replay/replay_policy.h"

#include <stdlib.h>

struct round_robin {
	const struct kvb_fleet_options *options;
	uint32_t next, next_prefiller;
	uint32_t worker; /* the worker that was picked last */
};

static void *create(const struct kvb_policy_env *env)
{
	struct round_robin *rr = kvb_alloc(1, sizeof(*rr));

	rr->options = &env->fleet->options;
	return rr;
}

static uint32_t pick(void *self, uint32_t job, int64_t now_ns)
{
	struct round_robin *rr = self;

	(void)job;
	(void)now_ns;
	do
		rr->worker = rr->next++ % rr->options->workers;
	while (!kvb_pd_decodes(&rr->options->pd, rr->worker));
	return rr->worker;
}

static uint32_t prefiller(void *self, uint32_t job)
{
	struct round_robin *rr = self;
	uint32_t worker;

	(void)job;
	if (!kvb_pd_on(&rr->options->pd))
		return KVB_ROUTED;
	do
		worker = rr->next_prefiller++ % rr->options->workers;
	while (!kvb_pd_prefills(&rr->options->pd, worker));
	return worker == rr->worker ? KVB_ROUTED : worker;
}

const struct kvb_policy_ops kvb_round_robin_ops = {
	.create = create, .pick = pick, .prefiller = prefiller, .destroy = free};
