/*
 * metrics_pd.c - counts prefills and decodes on different workers.
 */
#include "admin/metrics_shard.h"

void kvw_metrics_pd_plan(struct kvw_metrics_shard *shard, enum kvw_pd_plan plan)
{
	kvw_bump(&shard->pd.plans[plan], 1);
}

void kvw_metrics_pd_leg(struct kvw_metrics_shard *shard, enum kvw_pd_leg leg, int64_t took_ns,
	uint32_t prompt_tokens, uint32_t cached_tokens)
{
	struct kvw_pd_cell *pd = &shard->pd;

	kvw_bump(&pd->legs[leg], 1);
	kvw_bump(&pd->prompt_tokens, prompt_tokens);
	kvw_bump(&pd->cached_tokens, cached_tokens);
	if (leg == KVW_PD_LEG_OK)
		kvw_histogram_observe(&pd->prefill, &shard->bounds->token, took_ns);
}

void kvw_metrics_pd_decode(struct kvw_metrics_shard *shard, enum kvw_pd_decode decode)
{
	kvw_bump(&shard->pd.decodes[decode], 1);
}

void kvw_metrics_pd_handover(struct kvw_metrics_shard *shard, int64_t took_ns)
{
	kvw_histogram_observe(&shard->pd.handover, &shard->bounds->added, took_ns);
}

void kvw_metrics_pd_transfer(struct kvw_metrics_shard *shard, int64_t took_ns)
{
	kvw_histogram_observe(&shard->pd.transfer, &shard->bounds->token, took_ns);
}
