/*
 * collect_scale.c - writes samples of the signal by which fleets are scaled, and of what is behind
 * it.
 *
 * A model that some worker lists is shown with the roles of its workers from the start, at 0, so
 * that an autoscaler finds a figure before the first request and while none comes. Models without a
 * worker are shown while kvway remembers predictions for them.
 */
#include "admin/collect.h"

/* Marks the roles of each listed model's workers: bit r of roles[slot] is enum kvw_role r. */
static void find_roles(const struct kvw_metrics *metrics, uint8_t *roles)
{
	const struct kvw_fleet_view *view =
		atomic_load_explicit(&metrics->fleet->view, memory_order_acquire);

	for (size_t i = 0; view != NULL && i < view->model_count; i++) {
		const struct kvw_model_entry *entry = &view->models[i];

		if (entry->model->index >= KVW_MODELS_NAMED)
			continue;
		for (size_t word = 0; word < KVW_MODEL_WORDS; word++)
			for (uint64_t left = entry->workers[word]; left != 0; left &= left - 1) {
				size_t slot = word * 64 + (size_t)__builtin_ctzll(left);
				const struct kvw_worker *worker =
					kvw_metrics_worker(metrics, slot);

				if (worker != NULL)
					roles[entry->model->index + 1] |=
						(uint8_t)(1u << worker->config.role);
			}
	}
}

static void write_quantiles(struct kvw_collect *collect, struct kvw_label *labels, size_t model,
	size_t role, const struct kvw_scale_sums *sums)
{
	static const struct {
		double share;
		const char *text;
	} quantiles[] = {{0.5, "0.5"}, {0.9, "0.9"}};
	static const struct kvw_scale_window empty;
	const struct kvw_scale_window *window = collect->metrics->scale_windows[model][role];

	for (size_t i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++) {
		labels[2] = (struct kvw_label){"quantile", kvw_slice_of(quantiles[i].text)};
		kvw_sample_double(&collect->out, labels, 3,
			kvw_scale_quantile(window == NULL ? &empty : window, &sums->ratios,
				&collect->metrics->bounds.ratio, quantiles[i].share,
				collect->now_ns));
	}
}

static void write_buckets(struct kvw_collect *collect, const struct kvw_label *labels,
	const struct kvw_scale_sums *sums)
{
	const struct kvw_bounds *bounds = &collect->metrics->bounds.ratio;
	double ratios[KVW_BOUNDS_MAX];

	for (size_t i = 0; i < bounds->count; i++)
		ratios[i] = (double)bounds->ns[i] / 1e3;
	kvw_sample_buckets(&collect->out, labels, 2, ratios, bounds->count, sums->ratios.buckets,
		(double)sums->ratios.sum_ns / 1e3);
}

static void write_parts(
	struct kvw_collect *collect, struct kvw_label *labels, const struct kvw_scale_sums *sums)
{
	static const char *const parts[KVW_SCALE_PARTS] = {"wait", "queue", "prefill", "promised"};

	for (size_t part = 0; part < KVW_SCALE_PARTS; part++) {
		labels[2] = (struct kvw_label){"part", kvw_slice_of(parts[part])};
		kvw_sample_double(&collect->out, labels, 3, (double)sums->ns[part] / 1e9);
	}
}

void kvw_collect_scale(struct kvw_collect *collect)
{
	const struct kvw_metrics *metrics = collect->metrics;
	uint8_t roles[KVW_MODEL_SLOTS] = {0};
	struct kvw_scale_sums sums;

	find_roles(metrics, roles);
	for (size_t model = 0; model < KVW_MODEL_SLOTS; model++)
		for (size_t role = 0; role < KVW_ROLES; role++) {
			struct kvw_label labels[3] = {{"model", kvw_model_label(metrics, model)},
				{"role", kvw_slice_of(kvw_role_name((enum kvw_role)role))}};

			/* A model without a name has the label of KVW_MODEL_OTHER. */
			if (model > 0 && model < KVW_MODEL_OTHER &&
				metrics->models[model - 1] == NULL)
				continue;
			if (!kvw_scale_sums(metrics, model, role, &sums) &&
				(roles[model] >> role & 1) == 0)
				continue;
			if (collect->arg == KVW_OF_SCALE_QUANTILES)
				write_quantiles(collect, labels, model, role, &sums);
			else if (collect->arg == KVW_OF_SCALE_RATIOS)
				write_buckets(collect, labels, &sums);
			else
				write_parts(collect, labels, &sums);
		}
}
