/*
 * metrics_render.c - renders all metrics of metrics.def.
 *
 * Rendering holds the lock of the sliding window, which recording never takes: two scrapes at once
 * wait for each other, requests do not. The text is built in memory and returned as a whole.
 */
#include "base/clock.h"
#include "admin/collect.h"
#include "fleet/fleet.h"
#include "usage/ledger.h"

static const struct {
	struct kvw_metric_info info;
	void (*collect)(struct kvw_collect *collect);
	int arg;
} metrics_list[] = {
#define KVW_METRIC(name, type, labels, collector, arg, help)                                       \
	{{name, #type, labels, help}, kvw_collect_##collector, arg},
#define KVW_QUESTION(text) {{NULL, "", "", text}, NULL, 0},
#include "admin/metrics.def"
};

#define METRICS (sizeof(metrics_list) / sizeof(metrics_list[0]))

const struct kvw_metric_info *kvw_metric_info(size_t i)
{
	return i < METRICS ? &metrics_list[i].info : NULL;
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

size_t kvw_metrics_slots(const struct kvw_metrics *metrics)
{
	return metrics->fleet->count + 1;
}

struct kvw_worker *kvw_metrics_worker(const struct kvw_metrics *metrics, size_t slot)
{
	struct kvw_worker *worker = kvw_fleet_worker(metrics->fleet, slot);

	if (worker == NULL || atomic_load_explicit(&worker->hidden, memory_order_relaxed))
		return NULL;
	return worker;
}

bool kvw_metrics_shown(const struct kvw_metrics *metrics, size_t slot)
{
	return slot == 0 || kvw_metrics_worker(metrics, slot - 1) != NULL;
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

/* Notes each model that a view shows, since these models live as long as the fleet, but the view
 * does not. */
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
	kvw_scale_tick(metrics, now_ns);
	pthread_mutex_unlock(&metrics->lock);
}

enum kvw_err kvw_metrics_render(
	struct kvw_metrics *metrics, int64_t now_ns, bool open, char **text, size_t *len)
{
	struct kvw_collect collect = {.metrics = metrics, .out.open = open, .now_ns = now_ns};

	kvw_ledger_collect(metrics->sources.ledger, kvw_clock_wall_ns() / KVW_NS_PER_S);
	pthread_mutex_lock(&metrics->lock);
	learn_models(metrics);
	kvw_window_sample(metrics, now_ns);
	kvw_scale_tick(metrics, now_ns);
	for (size_t i = 0; i < METRICS; i++) {
		if (metrics_list[i].collect == NULL)
			continue; /* a question */
		collect.arg = metrics_list[i].arg;
		kvw_metric_head(&collect.out, &metrics_list[i].info);
		metrics_list[i].collect(&collect);
	}
	pthread_mutex_unlock(&metrics->lock);
	return kvw_exposition_take(&collect.out, text, len);
}

void kvw_metrics_reference(FILE *out)
{
	kvw_metrics_page(out,
		"# Metrics of kvway\n\n"
		"Generated from `metrics.def` by `ninja -C BUILD metrics-reference`; a test "
		"compares.\n"
		"`GET /metrics` shows them in this order as Prometheus text 0.0.4, or on the admin "
		"address as OpenMetrics 1.0.0 to scrapers whose `Accept` prefers that: then "
		"buckets of `kvway_request_seconds` and `kvway_time_to_first_token_seconds` have "
		"the `trace_id` of the last exported request in them.\n"
		"`server` and `worker` are the URL of a worker, `none` where no worker was "
		"chosen;\n"
		"`model` is a name that some worker serves, `unknown` or `other`.\n"
		"Each section is a question, and has the metrics that answer it.\n",
		kvw_metric_info);
}
