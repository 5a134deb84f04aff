/*
 * metrics.c - creates shards, and counts into them.
 *
 * One request costs some forty plain loads and stores, no lock, no hashing and no division; the
 * histograms find their bucket from the bit length of the value. A label is an index here; a scrape
 * turns it into text (collect*.c).
 */
#include "admin/metrics.h"

#include <assert.h>
#include <stdlib.h>

#include "base/clock.h"
#include "fleet/fleet.h"
#include "admin/metrics_shard.h"

/* Bounds in microseconds. The first list is that of production-stack's router, the next two are
 * vLLM's own for time to first token and inter-token latency, so that router and engine can be
 * compared; since routers in front of small models need finer bounds, there are three more
 * below. */
static const uint64_t latency_us[] = {50000, 100000, 250000, 500000, 1000000, 2500000, 5000000,
	10000000, 30000000, 60000000, 120000000};
static const uint64_t token_us[] = {1000, 5000, 10000, 20000, 40000, 60000, 80000, 100000, 250000,
	500000, 750000, 1000000, 2500000, 5000000, 7500000, 10000000, 20000000, 40000000, 80000000,
	160000000, 640000000, 2560000000};
static const uint64_t gap_us[] = {1000, 2500, 5000, 10000, 25000, 50000, 75000, 100000, 150000,
	200000, 300000, 400000, 500000, 750000, 1000000, 2500000, 5000000, 7500000, 10000000,
	20000000, 40000000, 80000000};
static const uint64_t added_us[] = {10, 20, 30, 50, 75, 100, 150, 200, 300, 500, 1000, 2000, 5000,
	10000, 20000, 50000, 100000, 250000, 1000000};
static const uint64_t difference_characters[] = {
	8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 65536};

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define US 1000 /* ns */

/* Status codes that have a slot; slot 0 is "no answer". The classes follow. */
static const uint16_t statuses[] = {0, 200, 201, 202, 204, 206, 304, 400, 401, 403, 404, 405, 408,
	409, 411, 413, 415, 417, 422, 424, 429, 431, 500, 501, 502, 503, 504, 505, 507, 529};
#define STATUS_CLASS_1XX COUNT_OF(statuses)
static_assert(STATUS_CLASS_1XX + 6 <= KVW_STATUS_SLOTS, "slots for 1xx to 5xx and other");

const char *kvw_status_name(size_t slot)
{
	static const char *const names[KVW_STATUS_SLOTS] = {"0", "200", "201", "202", "204", "206",
		"304", "400", "401", "403", "404", "405", "408", "409", "411", "413", "415", "417",
		"422", "424", "429", "431", "500", "501", "502", "503", "504", "505", "507", "529",
		"1xx", "2xx", "3xx", "4xx", "5xx", "other"};

	return names[slot];
}

static size_t status_slot(int status)
{
	if (status == 200)
		return 1;
	for (size_t i = 0; i < COUNT_OF(statuses); i++)
		if (statuses[i] == status)
			return i;
	if (status >= 100 && status <= 599)
		return STATUS_CLASS_1XX + (size_t)(status / 100 - 1);
	return STATUS_CLASS_1XX + 5;
}

static void shard_finish(struct kvw_metrics_shard *shard)
{
	if (shard->request_cells != NULL)
		for (size_t i = 0; i < shard->worker_slots * KVW_API_COUNT; i++)
			free(atomic_load_explicit(&shard->request_cells[i], memory_order_relaxed));
	if (shard->server_cells != NULL)
		for (size_t i = 0; i < shard->worker_slots * KVW_MODEL_SLOTS; i++)
			free(atomic_load_explicit(&shard->server_cells[i], memory_order_relaxed));
	for (size_t i = 0; i <= KVW_GROUP_OTHER; i++)
		kvw_group_cell_destroy(
			atomic_load_explicit(&shard->group_cells[i], memory_order_relaxed));
	free(shard->request_cells);
	free(shard->server_cells);
	free(shard->workers);
}

/* The cells of "no worker" exist from the start: they are used when memory runs out. */
static enum kvw_err shard_init(struct kvw_metrics_shard *shard,
	const struct kvw_metric_bounds *bounds, size_t worker_slots)
{
	struct kvw_server_cell *other;

	shard->bounds = bounds;
	shard->worker_slots = worker_slots;
	shard->workers = calloc(worker_slots, sizeof(*shard->workers));
	shard->request_cells = calloc(worker_slots * KVW_API_COUNT, sizeof(*shard->request_cells));
	shard->server_cells = calloc(worker_slots * KVW_MODEL_SLOTS, sizeof(*shard->server_cells));
	if (shard->workers == NULL || shard->request_cells == NULL || shard->server_cells == NULL)
		return KVW_ENOMEM;
	for (size_t api = 0; api < KVW_API_COUNT; api++) {
		struct kvw_request_cell *cell = calloc(1, sizeof(*cell));

		if (cell == NULL)
			return KVW_ENOMEM;
		atomic_init(&shard->request_cells[api], cell);
	}
	other = calloc(1, sizeof(*other));
	if (other == NULL)
		return KVW_ENOMEM;
	atomic_init(&shard->server_cells[KVW_MODEL_OTHER], other);
	return KVW_OK;
}

enum kvw_err kvw_metrics_create(
	size_t loops, const struct kvw_fleet *fleet, struct kvw_metrics **out)
{
	struct kvw_metrics *metrics = calloc(1, sizeof(*metrics));

	if (metrics == NULL)
		return KVW_ENOMEM;
	pthread_mutex_init(&metrics->lock, NULL);
	metrics->fleet = fleet;
	metrics->worker_slots = KVW_MAX_WORKERS + 1;
	metrics->start_wall_ns = kvw_clock_wall_ns();
	kvw_bounds_init(&metrics->bounds.latency, latency_us, COUNT_OF(latency_us), US);
	kvw_bounds_init(&metrics->bounds.token, token_us, COUNT_OF(token_us), US);
	kvw_bounds_init(&metrics->bounds.gap, gap_us, COUNT_OF(gap_us), US);
	kvw_bounds_init(&metrics->bounds.added, added_us, COUNT_OF(added_us), US);
	kvw_bounds_init(&metrics->bounds.difference, difference_characters,
		COUNT_OF(difference_characters), 1);
	kvw_scale_bounds(&metrics->bounds.ratio);
	metrics->window.workers = calloc(
		KVW_WINDOW_SAMPLES * metrics->worker_slots, sizeof(*metrics->window.workers));
	metrics->shards = aligned_alloc(64, loops * sizeof(*metrics->shards));
	if (metrics->window.workers == NULL || metrics->shards == NULL)
		goto fail;
	for (size_t i = 0; i < loops; i++) {
		metrics->shards[i] = (struct kvw_metrics_shard){0};
		metrics->shards[i].classes = &metrics->classes;
		metrics->shards[i].groups = &metrics->groups;
		metrics->loops = i + 1;
		if (shard_init(&metrics->shards[i], &metrics->bounds, metrics->worker_slots) !=
			KVW_OK)
			goto fail;
	}
	*out = metrics;
	return KVW_OK;
fail:
	kvw_metrics_destroy(metrics);
	return KVW_ENOMEM;
}

void kvw_metrics_destroy(struct kvw_metrics *metrics)
{
	if (metrics == NULL)
		return;
	kvw_scale_finish(metrics);
	for (size_t i = 0; i < metrics->loops; i++)
		shard_finish(&metrics->shards[i]);
	free(metrics->shards);
	kvw_metric_classes_finish(&metrics->classes);
	kvw_metric_groups_finish(&metrics->groups);
	free(metrics->window.workers);
	pthread_mutex_destroy(&metrics->lock);
	free(metrics);
}

struct kvw_metrics_shard *kvw_metrics_shard(struct kvw_metrics *metrics, size_t loop)
{
	assert(loop < metrics->loops);
	return &metrics->shards[loop];
}

void kvw_metrics_set_sources(struct kvw_metrics *metrics, const struct kvw_metrics_sources *sources)
{
	metrics->sources = *sources;
}

void kvw_metrics_add(struct kvw_metrics_shard *shard, enum kvw_counter counter, uint64_t n)
{
	kvw_bump(&shard->counters[counter], n);
}

static void gauge_add(_Atomic int64_t *gauge, int64_t delta)
{
	atomic_store_explicit(gauge, atomic_load_explicit(gauge, memory_order_relaxed) + delta,
		memory_order_relaxed);
}

void kvw_metrics_gauge(struct kvw_metrics_shard *shard, enum kvw_gauge gauge, int64_t delta)
{
	gauge_add(&shard->gauges[gauge], delta);
}

void kvw_metrics_stream_gap(struct kvw_metrics_shard *shard, int64_t gap_ns)
{
	kvw_histogram_observe(&shard->gap, &shard->bounds->gap, gap_ns);
}

void kvw_metrics_inexact(struct kvw_metrics_shard *shard, enum kvw_inexact inexact)
{
	kvw_bump(&shard->inexact[inexact], 1);
}

void kvw_metrics_token_wait(struct kvw_metrics_shard *shard, int64_t wait_ns)
{
	kvw_histogram_observe(&shard->token_wait, &shard->bounds->added, wait_ns);
}

void kvw_metrics_waited(struct kvw_metrics_shard *shard, int64_t wait_ns)
{
	kvw_histogram_observe(&shard->wait, &shard->bounds->token, wait_ns);
}

/* Returns the slot of a worker; 0: it has none. */
static size_t worker_slot(const struct kvw_metrics_shard *shard, uint32_t worker_id)
{
	return worker_id < shard->worker_slots - 1 ? (size_t)worker_id + 1 : 0;
}

void kvw_metrics_decoding(struct kvw_metrics_shard *shard, uint32_t worker_id, int delta)
{
	gauge_add(&shard->workers[worker_slot(shard, worker_id)].decoding, delta);
}

/* Returns a cell, and makes it if needed. Published with release, so that a reader that sees the
 * pointer sees the zeroed cell. */
static struct kvw_request_cell *request_cell(
	struct kvw_metrics_shard *shard, size_t slot, enum kvw_api api)
{
	struct kvw_request_cell *_Atomic *place = &shard->request_cells[slot * KVW_API_COUNT + api];
	struct kvw_request_cell *cell = atomic_load_explicit(place, memory_order_relaxed);

	if (cell != NULL)
		return cell;
	cell = calloc(1, sizeof(*cell));
	if (cell == NULL)
		return atomic_load_explicit(&shard->request_cells[api], memory_order_relaxed);
	atomic_store_explicit(place, cell, memory_order_release);
	return cell;
}

static struct kvw_server_cell *server_cell(
	struct kvw_metrics_shard *shard, size_t slot, size_t model)
{
	struct kvw_server_cell *_Atomic *place =
		&shard->server_cells[slot * KVW_MODEL_SLOTS + model];
	struct kvw_server_cell *cell = atomic_load_explicit(place, memory_order_relaxed);

	if (cell != NULL)
		return cell;
	cell = calloc(1, sizeof(*cell));
	if (cell == NULL)
		return atomic_load_explicit(
			&shard->server_cells[KVW_MODEL_OTHER], memory_order_relaxed);
	atomic_store_explicit(place, cell, memory_order_release);
	return cell;
}

/* Returns the kind of error; KVW_ERROR_COUNT: no error. A client that leaves is no error. */
static enum kvw_error_type error_type(const struct kvw_request_record *record)
{
	switch (record->end) {
	case KVW_END_UPSTREAM_LOST:
		return KVW_ERROR_UPSTREAM_LOST;
	case KVW_END_TIMEOUT:
		return KVW_ERROR_TIMEOUT;
	case KVW_END_SHUTDOWN:
		return KVW_ERROR_LOCAL;
	case KVW_END_LOCAL:
		return record->status >= 400 ? KVW_ERROR_LOCAL : KVW_ERROR_COUNT;
	case KVW_END_COMPLETE:
		if (record->status >= 500)
			return KVW_ERROR_HTTP_5XX;
		return record->status >= 400 ? KVW_ERROR_HTTP_4XX : KVW_ERROR_COUNT;
	case KVW_END_CLIENT_GONE:
	case KVW_END_COUNT:
		break;
	}
	return KVW_ERROR_COUNT;
}

static void record_server(struct kvw_metrics_shard *shard, const struct kvw_request_record *record,
	size_t slot, size_t model)
{
	struct kvw_server_cell *cell = server_cell(shard, slot, model);
	enum kvw_error_type error = error_type(record);
	bool failed = error != KVW_ERROR_COUNT;

	if (failed)
		kvw_bump(&cell->errors[error], 1);
	if (record->prompt_known)
		kvw_bump(&cell->input_tokens, record->prompt_tokens);
	if (record->completion_known)
		kvw_bump(&cell->output_tokens, record->completion_tokens);
	if (slot != 0 && record->end != KVW_END_CLIENT_GONE)
		kvw_histogram_observe(
			&cell->latency[failed], &shard->bounds->latency, record->total_ns);
}

/* Records predicted against actual cached tokens, for all requests and for one worker's. */
static void record_comparison(struct kvw_metrics_shard *shard, struct kvw_worker_tally *worker,
	const struct kvw_request_record *record)
{
	uint32_t predicted = record->predicted_cached;
	uint32_t cached = record->cached_tokens;
	uint32_t missing = predicted > cached ? predicted - cached : 0;
	uint32_t unforeseen = cached > predicted ? cached - predicted : 0;

	kvw_bump(&shard->tallies[KVW_TALLY_COMPARISONS], 1);
	kvw_bump(&shard->tallies[KVW_TALLY_COMPARED], record->prompt_tokens);
	kvw_bump(&shard->tallies[KVW_TALLY_ERROR], missing + unforeseen);
	kvw_bump(&worker->compared, 1);
	kvw_bump(&worker->predicted, predicted);
	kvw_bump(&worker->cached, cached);
	kvw_bump(&worker->missing, missing);
	kvw_bump(&worker->unforeseen, unforeseen);
	if (record->exact)
		kvw_bump(record->exact_right ? &worker->exact_right : &worker->exact_wrong, 1);
}

static void record_tokens(struct kvw_metrics_shard *shard, struct kvw_worker_tally *worker,
	const struct kvw_request_record *record)
{
	bool predicted = record->predicted_prompt != 0;

	if (predicted) {
		kvw_bump(&shard->tallies[KVW_TALLY_PREDICTED_PROMPT], record->predicted_prompt);
		kvw_bump(&shard->tallies[KVW_TALLY_PREDICTED_CACHED], record->predicted_cached);
		kvw_bump(&shard->tallies[KVW_TALLY_PREDICTED_FRAGMENTS],
			record->predicted_fragments);
	}
	if (record->completion_known) {
		kvw_bump(&shard->tallies[KVW_TALLY_COMPLETION], record->completion_tokens);
		kvw_bump(&worker->output_tokens, record->completion_tokens);
	}
	if (record->completion_known && record->stream && record->first_token_ns > 0 &&
		record->completion_tokens > 1 && record->total_ns > record->first_token_ns) {
		kvw_bump(&worker->decode_tokens, record->completion_tokens - 1);
		kvw_bump(&worker->decode_ns,
			(uint64_t)(record->total_ns - record->first_token_ns));
	}
	if (!record->cached_known || !record->prompt_known)
		return;
	kvw_bump(&shard->tallies[KVW_TALLY_PROMPT], record->prompt_tokens);
	kvw_bump(&shard->tallies[KVW_TALLY_CACHED], record->cached_tokens);
	if (predicted)
		record_comparison(shard, worker, record);
}

/* Records a forwarded request: how long it took, and why its worker was chosen. */
static void record_forwarded(
	struct kvw_metrics_shard *shard, const struct kvw_request_record *record, size_t slot)
{
	struct kvw_route_histograms *route = &shard->routes[record->api];
	const struct kvw_metric_bounds *bounds = shard->bounds;
	struct kvw_worker_tally *worker = &shard->workers[slot];

	kvw_bump(&worker->finished, 1);
	kvw_bump(&worker->latency_ns, record->total_ns < 0 ? 0 : (uint64_t)record->total_ns);
	kvw_bump(&shard->reasons[record->reason], 1);
	kvw_bump(&shard->knowledges[record->knowledge], 1);
	kvw_histogram_observe(&route->total, &bounds->token, record->total_ns);
	kvw_histogram_observe(&route->added, &bounds->added, record->added_ns);
	if (record->stream && record->first_token_ns > 0)
		kvw_histogram_observe(&route->first_token, &bounds->token, record->first_token_ns);
	record_tokens(shard, worker, record);
}

void kvw_metrics_record(struct kvw_metrics_shard *shard, const struct kvw_request_record *record)
{
	size_t slot = worker_slot(shard, record->worker_id);
	size_t model =
		record->model_label <= KVW_MODELS_NAMED ? record->model_label : KVW_MODEL_OTHER;
	struct kvw_request_cell *cell = request_cell(shard, slot, record->api);

	kvw_bump(&cell->count[record->end][status_slot(record->status)], 1);
	kvw_bump(&shard->tallies[KVW_TALLY_REQUEST_BYTES], record->request_bytes);
	kvw_bump(&shard->tallies[KVW_TALLY_RESPONSE_BYTES], record->response_bytes);
	kvw_bump(&shard->tallies[KVW_TALLY_STREAM_CHUNKS], record->stream_chunks);
	if (model != 0 || record->model.len != 0)
		kvw_bump(&shard->incoming[model], 1);
	if (slot != 0 || record->api != KVW_API_OTHER)
		record_server(shard, record, slot, model);
	if (slot != 0)
		record_forwarded(shard, record, slot);
	if (record->group.len > 0)
		kvw_metrics_group_record(shard, record, error_type(record) != KVW_ERROR_COUNT);
}

static void zero(void *words, size_t bytes)
{
	_Atomic uint64_t *word = words;

	for (size_t i = 0; i < bytes / sizeof(*word); i++)
		atomic_store_explicit(&word[i], 0, memory_order_relaxed);
}

static void forget_in(struct kvw_metrics_shard *shard, size_t slot)
{
	zero(&shard->workers[slot], sizeof(shard->workers[slot]));
	for (size_t i = 0; i < KVW_API_COUNT; i++) {
		struct kvw_request_cell *cell = atomic_load_explicit(
			&shard->request_cells[slot * KVW_API_COUNT + i], memory_order_acquire);

		if (cell != NULL)
			zero(cell, sizeof(*cell));
	}
	for (size_t i = 0; i < KVW_MODEL_SLOTS; i++) {
		struct kvw_server_cell *cell = atomic_load_explicit(
			&shard->server_cells[slot * KVW_MODEL_SLOTS + i], memory_order_acquire);

		if (cell != NULL)
			zero(cell, sizeof(*cell));
	}
}

void kvw_metrics_forget(struct kvw_metrics *metrics, uint32_t worker_id)
{
	size_t slot = (size_t)worker_id + 1;

	pthread_mutex_lock(&metrics->lock);
	for (size_t i = 0; i < metrics->loops; i++)
		forget_in(&metrics->shards[i], slot);
	kvw_window_forget(metrics, slot);
	pthread_mutex_unlock(&metrics->lock);
}

int64_t kvw_metrics_gauge_sum(const struct kvw_metrics *metrics, enum kvw_gauge gauge)
{
	int64_t sum = 0;

	for (size_t i = 0; i < metrics->loops; i++)
		sum += atomic_load_explicit(
			&metrics->shards[i].gauges[gauge], memory_order_relaxed);
	return sum;
}

uint64_t kvw_metrics_counter_sum(const struct kvw_metrics *metrics, enum kvw_counter counter)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < metrics->loops; i++)
		sum += atomic_load_explicit(
			&metrics->shards[i].counters[counter], memory_order_relaxed);
	return sum;
}
