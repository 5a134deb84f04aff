/*
 * metrics_render.c - the list of metrics, and the text that shows them.
 *
 * Rendering holds the lock of the sliding window, which recording never takes: two scrapes at once
 * wait for each other, requests do not. Text is built in memory and handed over whole.
 */
#include <stdlib.h>

#include "base/clock.h"
#include "admin/collect.h"
#include "fleet/fleet.h"

/* Parallel to kvw_metric_info(). */
static const struct {
	void (*collect)(struct kvw_collect *collect);
	int arg;
} families[] = {
#define KVW_METRIC(name, type, labels, collector, arg, help) {kvw_collect_##collector, arg},
#include "admin/metrics.def"
};

#define FAMILY_COUNT (sizeof(families) / sizeof(families[0]))

void kvw_sample(struct kvw_collect *collect, const char *suffix, const struct kvw_label *labels,
	size_t count)
{
	struct kvw_page *text = collect->text;

	kvw_page_string(text, collect->info->name);
	kvw_page_string(text, suffix);
	for (size_t i = 0; i < count; i++) {
		kvw_page_put(text, i == 0 ? "{" : ",", 1);
		kvw_page_string(text, labels[i].name);
		kvw_page_put(text, "=\"", 2);
		kvw_page_label(text, labels[i].value);
		kvw_page_put(text, "\"", 1);
	}
	kvw_page_string(text, count > 0 ? "} " : " ");
}

void kvw_sample_u64(
	struct kvw_collect *collect, const struct kvw_label *labels, size_t count, uint64_t value)
{
	kvw_sample(collect, "", labels, count);
	kvw_page_u64(collect->text, value);
	kvw_page_put(collect->text, "\n", 1);
}

void kvw_sample_double(
	struct kvw_collect *collect, const struct kvw_label *labels, size_t count, double value)
{
	kvw_sample(collect, "", labels, count);
	kvw_page_double(collect->text, value);
	kvw_page_put(collect->text, "\n", 1);
}

void kvw_sample_histogram(struct kvw_collect *collect, const struct kvw_label *labels, size_t count,
	const struct kvw_bounds *bounds, const struct kvw_histogram_sum *sum)
{
	struct kvw_page *text = collect->text;
	uint64_t cumulative = 0;
	struct kvw_label all[8];
	char le[32];

	for (size_t i = 0; i < count; i++)
		all[i] = labels[i];
	for (size_t i = 0; i <= bounds->count; i++) {
		snprintf(le, sizeof(le), "%.9g",
			i < bounds->count ? (double)bounds->ns[i] / 1e9 : 0);
		all[count].name = "le";
		all[count].value = kvw_slice_of(i < bounds->count ? le : "+Inf");
		cumulative += sum->buckets[i];
		kvw_sample(collect, "_bucket", all, count + 1);
		kvw_page_u64(text, cumulative);
		kvw_page_put(text, "\n", 1);
	}
	kvw_sample(collect, "_sum", labels, count);
	kvw_page_seconds(text, (int64_t)sum->sum_ns);
	kvw_page_put(text, "\n", 1);
	kvw_sample(collect, "_count", labels, count);
	kvw_page_u64(text, cumulative);
	kvw_page_put(text, "\n", 1);
}

uint64_t kvw_shards_sum(const struct kvw_metrics *metrics, size_t offset)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < metrics->loops; i++) {
		const char *shard = (const char *)&metrics->shards[i];

		sum += atomic_load_explicit(
			(const _Atomic uint64_t *)(const void *)(shard + offset),
			memory_order_relaxed);
	}
	return sum;
}

struct kvw_slice kvw_worker_label(const struct kvw_metrics *metrics, size_t slot)
{
	return slot == 0 ? KVW_SLICE("none") : kvw_slice_of(metrics->fleet->workers[slot - 1]->url);
}

struct kvw_slice kvw_model_label(const struct kvw_metrics *metrics, size_t slot)
{
	if (slot == 0)
		return KVW_SLICE("unknown");
	if (slot == KVW_MODEL_OTHER || metrics->models[slot - 1] == NULL)
		return KVW_SLICE("other");
	return kvw_slice_of(metrics->models[slot - 1]->name);
}

/* Models live as long as the fleet, the view does not: keep each one that it ever shows. */
static void learn_models(struct kvw_metrics *metrics)
{
	const struct kvw_fleet_view *view =
		atomic_load_explicit(&metrics->fleet->view, memory_order_acquire);

	for (size_t i = 0; view != NULL && i < view->model_count; i++) {
		const struct kvw_model *model = view->models[i].model;

		if (model->index < KVW_MODELS_NAMED)
			metrics->models[model->index] = model;
	}
}

void kvw_metrics_tick(struct kvw_metrics *metrics, int64_t now_ns)
{
	pthread_mutex_lock(&metrics->lock);
	learn_models(metrics);
	kvw_window_sample(metrics, now_ns);
	pthread_mutex_unlock(&metrics->lock);
}

static void write_head(struct kvw_page *out, const struct kvw_metric_info *info)
{
	kvw_page_string(out, "# HELP ");
	kvw_page_string(out, info->name);
	kvw_page_put(out, " ", 1);
	kvw_page_string(out, info->help);
	kvw_page_string(out, "\n# TYPE ");
	kvw_page_string(out, info->name);
	kvw_page_put(out, " ", 1);
	kvw_page_string(out, info->type);
	kvw_page_put(out, "\n", 1);
}

enum kvw_err kvw_metrics_render(
	struct kvw_metrics *metrics, int64_t now_ns, char **text, size_t *len)
{
	struct kvw_page out = {0};
	struct kvw_collect collect = {.metrics = metrics, .text = &out, .now_ns = now_ns};

	pthread_mutex_lock(&metrics->lock);
	learn_models(metrics);
	kvw_window_sample(metrics, now_ns);
	for (size_t i = 0; i < FAMILY_COUNT; i++) {
		collect.info = kvw_metric_info(i);
		collect.arg = families[i].arg;
		write_head(&out, collect.info);
		families[i].collect(&collect);
	}
	pthread_mutex_unlock(&metrics->lock);
	if (out.failed) {
		free(out.data);
		return KVW_ENOMEM;
	}
	*text = out.data;
	*len = out.len;
	return KVW_OK;
}
