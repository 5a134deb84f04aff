/*
 * metrics_scale.c - counts predictions for the signal by which fleets are scaled, by model and
 * role, and samples them.
 */
#include <stdlib.h>

#include "admin/metrics_shard.h"

void kvw_metrics_predicted(struct kvw_metrics_shard *shard, uint32_t model_label, uint8_t role,
	const struct kvw_scale_prediction *prediction)
{
	size_t model = model_label <= KVW_MODELS_NAMED ? model_label : KVW_MODEL_OTHER;
	struct kvw_scale *_Atomic *place = &shard->scales[model][role];
	struct kvw_scale *scale = atomic_load_explicit(place, memory_order_relaxed);

	if (scale == NULL) {
		scale = calloc(1, sizeof(*scale));
		if (scale == NULL)
			return;
		atomic_store_explicit(place, scale, memory_order_release);
	}
	kvw_scale_count(scale, &shard->bounds->ratio, prediction);
}

bool kvw_scale_sums(const struct kvw_metrics *metrics, size_t model, size_t role,
	struct kvw_scale_sums *out)
{
	bool any = false;

	*out = (struct kvw_scale_sums){0};
	for (size_t i = 0; i < metrics->loops; i++) {
		const struct kvw_scale *scale = atomic_load_explicit(
			&metrics->shards[i].scales[model][role], memory_order_acquire);

		if (scale == NULL)
			continue;
		any = true;
		kvw_histogram_collect(&scale->ratios, &out->ratios);
		for (size_t part = 0; part < KVW_SCALE_PARTS; part++)
			out->ns[part] += kvw_counted(&scale->ns[part]);
	}
	return any;
}

void kvw_scale_tick(struct kvw_metrics *metrics, int64_t now_ns)
{
	struct kvw_scale_sums sums;

	for (size_t model = 0; model < KVW_MODEL_SLOTS; model++)
		for (size_t role = 0; role < KVW_ROLES; role++) {
			struct kvw_scale_window **window = &metrics->scale_windows[model][role];

			if (!kvw_scale_sums(metrics, model, role, &sums))
				continue;
			if (*window == NULL)
				*window = calloc(1, sizeof(**window));
			if (*window != NULL)
				kvw_scale_sample(*window, &sums.ratios, now_ns);
		}
}

void kvw_scale_finish(struct kvw_metrics *metrics)
{
	for (size_t model = 0; model < KVW_MODEL_SLOTS; model++)
		for (size_t role = 0; role < KVW_ROLES; role++) {
			for (size_t i = 0; i < metrics->loops; i++)
				free(atomic_load_explicit(&metrics->shards[i].scales[model][role],
					memory_order_relaxed));
			free(metrics->scale_windows[model][role]);
		}
}
