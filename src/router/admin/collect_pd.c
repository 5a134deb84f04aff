/*
 * collect_pd.c - writes samples about prefill and decode on different workers.
 */
#include "admin/collect.h"

static uint64_t sum_at(const struct kvw_metrics *metrics, size_t offset)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < metrics->loops; i++) {
		const char *cell = (const char *)&metrics->shards[i].pd;

		sum += atomic_load_explicit(
			(const _Atomic uint64_t *)(const void *)(cell + offset),
			memory_order_relaxed);
	}
	return sum;
}

static void by_name(struct kvw_collect *collect, size_t offset, const char *label,
	const char *const *names, size_t count)
{
	for (size_t i = 0; i < count; i++)
		kvw_sample_named(&collect->out, label, names[i],
			sum_at(collect->metrics, offset + i * sizeof(uint64_t)));
}

void kvw_collect_pd_plans(struct kvw_collect *collect)
{
	static const char *const names[KVW_PD_PLANS] = KVW_PD_PLAN_NAMES;

	by_name(collect, offsetof(struct kvw_pd_cell, plans), "plan", names, KVW_PD_PLANS);
}

void kvw_collect_pd_legs(struct kvw_collect *collect)
{
	static const char *const names[KVW_PD_LEGS] = KVW_PD_LEG_NAMES;

	by_name(collect, offsetof(struct kvw_pd_cell, legs), "result", names, KVW_PD_LEGS);
}

void kvw_collect_pd_decodes(struct kvw_collect *collect)
{
	static const char *const names[KVW_PD_DECODES] = KVW_PD_DECODE_NAMES;

	by_name(collect, offsetof(struct kvw_pd_cell, decodes), "result", names, KVW_PD_DECODES);
}

void kvw_collect_pd_tokens(struct kvw_collect *collect)
{
	kvw_sample_named(&collect->out, "kind", "prompt",
		sum_at(collect->metrics, offsetof(struct kvw_pd_cell, prompt_tokens)));
	kvw_sample_named(&collect->out, "kind", "cached",
		sum_at(collect->metrics, offsetof(struct kvw_pd_cell, cached_tokens)));
}

void kvw_collect_pd_histogram(struct kvw_collect *collect)
{
	const struct kvw_metric_bounds *bounds = &collect->metrics->bounds;
	struct kvw_histogram_sum sum = {0};

	for (size_t i = 0; i < collect->metrics->loops; i++) {
		const struct kvw_pd_cell *pd = &collect->metrics->shards[i].pd;

		kvw_histogram_collect(collect->arg == KVW_OF_PD_PREFILL    ? &pd->prefill
				      : collect->arg == KVW_OF_PD_HANDOVER ? &pd->handover
									   : &pd->transfer,
			&sum);
	}
	kvw_sample_histogram(&collect->out, NULL, 0,
		collect->arg == KVW_OF_PD_HANDOVER ? &bounds->added : &bounds->token, &sum);
}
