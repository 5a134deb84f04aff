/*
 * collect_requests.c - writes samples from the shards: requests, latencies, tokens, counters.
 *
 * Label combinations that have never occurred are left out; otherwise a fleet of 64 workers would
 * have some hundred thousand samples of 0.
 */
#include <stddef.h>
#include <string.h>

#include "openai/api_path.h"
#include "admin/collect.h"
#include "fleet/fleet.h"

void kvw_collect_counter(struct kvw_collect *collect)
{
	kvw_sample_u64(&collect->out, NULL, 0,
		kvw_metrics_counter_sum(collect->metrics, (enum kvw_counter)collect->arg));
}

void kvw_collect_gauge(struct kvw_collect *collect)
{
	kvw_sample_i64(&collect->out, NULL, 0,
		kvw_metrics_gauge_sum(collect->metrics, (enum kvw_gauge)collect->arg));
}

void kvw_collect_tally(struct kvw_collect *collect)
{
	size_t offset = offsetof(struct kvw_metrics_shard, tallies) +
			(size_t)collect->arg * sizeof(_Atomic uint64_t);

	kvw_sample_u64(&collect->out, NULL, 0, kvw_shards_sum(collect->metrics, offset));
}

void kvw_collect_timeouts(struct kvw_collect *collect)
{
	static const struct {
		const char *kind;
		enum kvw_counter counter;
	} kinds[] = {
		{"connect", KVW_COUNT_TIMEOUT_CONNECT},
		{"first_token", KVW_COUNT_TIMEOUT_FIRST_TOKEN},
		{"stream_idle", KVW_COUNT_TIMEOUT_STREAM_IDLE},
		{"head", KVW_COUNT_TIMEOUT_HEAD},
		{"body", KVW_COUNT_TIMEOUT_BODY},
		{"client_write", KVW_COUNT_TIMEOUT_CLIENT_WRITE},
		{"attempt", KVW_COUNT_TIMEOUT_ATTEMPT},
		{"request", KVW_COUNT_TIMEOUT_REQUEST},
	};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		kvw_sample_named(&collect->out, "kind", kinds[i].kind,
			kvw_metrics_counter_sum(collect->metrics, kinds[i].counter));
	}
}

void kvw_collect_decisions(struct kvw_collect *collect)
{
	const struct kvw_strategy *strategy = collect->metrics->fleet->strategy;
	struct kvw_label labels[2] = {
		{"strategy", kvw_slice_of(strategy == NULL ? "none" : strategy->ops->name)},
		{"reason", {NULL, 0}}};

	for (size_t i = 0; i < KVW_REASON_COUNT; i++) {
		size_t offset =
			offsetof(struct kvw_metrics_shard, reasons) + i * sizeof(_Atomic uint64_t);

		if (!kvw_reason_of(strategy == NULL ? NULL : strategy->ops, (enum kvw_reason)i))
			continue;
		labels[1].value = kvw_slice_of(kvw_reason_name((enum kvw_reason)i));
		kvw_sample_u64(&collect->out, labels, 2, kvw_shards_sum(collect->metrics, offset));
	}
}

void kvw_collect_incoming(struct kvw_collect *collect)
{
	uint64_t other = 0;
	struct kvw_label label = {"model", {NULL, 0}};

	for (size_t slot = 0; slot < KVW_MODEL_SLOTS; slot++) {
		uint64_t n = kvw_shards_sum(
			collect->metrics, offsetof(struct kvw_metrics_shard, incoming) +
						  slot * sizeof(_Atomic uint64_t));

		label.value = kvw_model_label(collect->metrics, slot);
		if (kvw_slice_equal(label.value, KVW_SLICE("other")) && slot != KVW_MODEL_OTHER) {
			other += n;
			continue;
		}
		if (slot == KVW_MODEL_OTHER)
			n += other;
		if (n > 0)
			kvw_sample_u64(&collect->out, &label, 1, n);
	}
}

/* Adds up the requests of one worker on one route, over all shards. */
static void requests_of(
	struct kvw_collect *collect, size_t slot, size_t api, uint64_t (*sums)[KVW_STATUS_SLOTS])
{
	const struct kvw_metrics *metrics = collect->metrics;

	for (size_t i = 0; i < metrics->loops; i++) {
		const struct kvw_request_cell *cell = atomic_load_explicit(
			&metrics->shards[i].request_cells[slot * KVW_API_COUNT + api],
			memory_order_acquire);

		if (cell == NULL)
			continue;
		for (size_t end = 0; end < KVW_END_COUNT; end++)
			for (size_t status = 0; status < KVW_STATUS_SLOTS; status++)
				sums[end][status] += atomic_load_explicit(
					&cell->count[end][status], memory_order_relaxed);
	}
}

void kvw_collect_requests(struct kvw_collect *collect)
{
	struct kvw_label labels[4] = {{"route", {NULL, 0}}, {"worker", {NULL, 0}},
		{"status", {NULL, 0}}, {"end", {NULL, 0}}};

	for (size_t at = 0; at < kvw_metrics_slots(collect->metrics) * KVW_API_COUNT; at++) {
		uint64_t sums[KVW_END_COUNT][KVW_STATUS_SLOTS] = {{0}};
		size_t slot = at / KVW_API_COUNT, api = at % KVW_API_COUNT;

		if (!kvw_metrics_shown(collect->metrics, slot))
			continue;
		requests_of(collect, slot, api, sums);
		labels[0].value = kvw_slice_of(kvw_api_name((enum kvw_api)api));
		labels[1].value = kvw_worker_label(collect->metrics, slot);
		for (size_t i = 0; i < (size_t)KVW_END_COUNT * KVW_STATUS_SLOTS; i++) {
			size_t end = i / KVW_STATUS_SLOTS, status = i % KVW_STATUS_SLOTS;

			if (sums[end][status] == 0)
				continue;
			labels[2].value = kvw_slice_of(kvw_status_name(status));
			labels[3].value = kvw_slice_of(kvw_end_name((enum kvw_end)end));
			kvw_sample_u64(&collect->out, labels, 4, sums[end][status]);
		}
	}
}

void kvw_collect_route_histogram(struct kvw_collect *collect)
{
	const struct kvw_metrics *metrics = collect->metrics;
	const struct kvw_bounds *bounds =
		collect->arg == KVW_OF_ADDED ? &metrics->bounds.added : &metrics->bounds.token;
	struct kvw_label label = {"route", {NULL, 0}};

	for (size_t api = 0; api < KVW_API_COUNT; api++) {
		struct kvw_histogram_sum sum = {0};

		for (size_t i = 0; i < metrics->loops; i++) {
			const struct kvw_route_histograms *route = &metrics->shards[i].routes[api];

			kvw_histogram_collect(collect->arg == KVW_OF_ADDED  ? &route->added
					      : collect->arg == KVW_OF_TTFT ? &route->first_token
									    : &route->total,
				&sum);
		}
		label.value = kvw_slice_of(kvw_api_name((enum kvw_api)api));
		if (collect->arg != KVW_OF_ADDED)
			collect->out.exemplars =
				metrics->exemplars.of[api][collect->arg == KVW_OF_TTFT
						? KVW_EXEMPLAR_FIRST_TOKEN
						: KVW_EXEMPLAR_TOTAL];
		if (sum.count > 0)
			kvw_sample_histogram(&collect->out, &label, 1, bounds, &sum);
		collect->out.exemplars = NULL;
	}
}

void kvw_collect_gap_histogram(struct kvw_collect *collect)
{
	struct kvw_histogram_sum sum = {0};

	for (size_t i = 0; i < collect->metrics->loops; i++)
		kvw_histogram_collect(&collect->metrics->shards[i].gap, &sum);
	kvw_sample_histogram(&collect->out, NULL, 0, &collect->metrics->bounds.gap, &sum);
}

/* Sums of one worker and model, over all shards. */
struct server_sum {
	bool seen;
	uint64_t input_tokens, output_tokens, errors[KVW_ERROR_COUNT];
	struct kvw_histogram_sum latency[2];
};

static void add_server(
	const struct kvw_metrics *metrics, size_t slot, size_t model, struct server_sum *sum)
{
	for (size_t i = 0; i < metrics->loops; i++) {
		const struct kvw_server_cell *cell = atomic_load_explicit(
			&metrics->shards[i].server_cells[slot * KVW_MODEL_SLOTS + model],
			memory_order_acquire);

		if (cell == NULL)
			continue;
		sum->seen = true;
		sum->input_tokens +=
			atomic_load_explicit(&cell->input_tokens, memory_order_relaxed);
		sum->output_tokens +=
			atomic_load_explicit(&cell->output_tokens, memory_order_relaxed);
		for (size_t e = 0; e < KVW_ERROR_COUNT; e++)
			sum->errors[e] +=
				atomic_load_explicit(&cell->errors[e], memory_order_relaxed);
		kvw_histogram_collect(&cell->latency[0], &sum->latency[0]);
		kvw_histogram_collect(&cell->latency[1], &sum->latency[1]);
	}
}

/* Returns whether the worker has served the model; most pairs have not. */
static bool have_met(const struct kvw_metrics *metrics, size_t slot, size_t model)
{
	for (size_t i = 0; i < metrics->loops; i++)
		if (atomic_load_explicit(
			    &metrics->shards[i].server_cells[slot * KVW_MODEL_SLOTS + model],
			    memory_order_relaxed) != NULL)
			return true;
	return false;
}

/* Writes what the present metric shows of one worker and model. labels has server and model set,
 * and room for one more. */
typedef void server_writer(
	struct kvw_collect *collect, struct kvw_label *labels, const struct server_sum *sum);

/* Calls `write` for each worker and model. Models whose name is not known yet are added to "other",
 * so that a label set has one series. */
static void each_server(struct kvw_collect *collect, server_writer *write)
{
	const struct kvw_metrics *metrics = collect->metrics;
	struct kvw_label labels[3] = {{"server", {NULL, 0}}, {"model", {NULL, 0}}};

	for (size_t slot = 0; slot < kvw_metrics_slots(metrics); slot++) {
		struct server_sum other = {0};

		if (!kvw_metrics_shown(metrics, slot))
			continue;
		labels[0].value = kvw_worker_label(metrics, slot);
		for (size_t model = 0; model < KVW_MODEL_SLOTS; model++) {
			bool named = model == 0 || (model <= KVW_MODELS_NAMED &&
							   metrics->models[model - 1] != NULL);
			struct server_sum sum;

			if (!have_met(metrics, slot, model))
				continue;
			sum = (struct server_sum){0};
			add_server(metrics, slot, model, named ? &sum : &other);
			labels[1].value = kvw_model_label(metrics, model);
			if (sum.seen)
				write(collect, labels, &sum);
		}
		if (other.seen)
			write(collect, labels, &other);
	}
}

static void write_tokens(
	struct kvw_collect *collect, struct kvw_label *labels, const struct server_sum *sum)
{
	uint64_t n = collect->arg == KVW_OF_INPUT ? sum->input_tokens : sum->output_tokens;

	if (n > 0)
		kvw_sample_u64(&collect->out, labels, 2, n);
}

void kvw_collect_server_tokens(struct kvw_collect *collect)
{
	each_server(collect, write_tokens);
}

static void write_errors(
	struct kvw_collect *collect, struct kvw_label *labels, const struct server_sum *sum)
{
	static const char *const names[KVW_ERROR_COUNT] = {
		[KVW_ERROR_HTTP_4XX] = "http_4xx",
		[KVW_ERROR_HTTP_5XX] = "http_5xx",
		[KVW_ERROR_UPSTREAM_LOST] = "upstream_lost",
		[KVW_ERROR_TIMEOUT] = "timeout",
		[KVW_ERROR_LOCAL] = "local",
	};

	labels[2].name = "error_type";
	for (size_t i = 0; i < KVW_ERROR_COUNT; i++) {
		labels[2].value = kvw_slice_of(names[i]);
		if (sum->errors[i] > 0)
			kvw_sample_u64(&collect->out, labels, 3, sum->errors[i]);
	}
}

void kvw_collect_server_errors(struct kvw_collect *collect)
{
	each_server(collect, write_errors);
}

static void write_latency(
	struct kvw_collect *collect, struct kvw_label *labels, const struct server_sum *sum)
{
	labels[2].name = "status";
	for (size_t failed = 0; failed < 2; failed++) {
		labels[2].value = kvw_slice_of(failed ? "error" : "success");
		if (sum->latency[failed].count > 0)
			kvw_sample_histogram(&collect->out, labels, 3,
				&collect->metrics->bounds.latency, &sum->latency[failed]);
	}
}

void kvw_collect_server_latency(struct kvw_collect *collect)
{
	each_server(collect, write_latency);
}
