/*
 * collect_state.c - writes samples of values that no shard has: those of workers, strategy, loops
 * and process.
 *
 * No function sleeps or reads more than a few small files of the kernel, since a scrape on the main
 * port runs on an event loop.
 */
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "admin/access_log.h"
#include "admin/collect.h"
#include "fleet/fleet.h"
#include "base/log.h"

static int64_t decoding_on(const struct kvw_metrics *metrics, size_t slot)
{
	int64_t sum = 0;

	for (size_t i = 0; i < metrics->loops; i++)
		sum += atomic_load_explicit(
			&metrics->shards[i].workers[slot].decoding, memory_order_relaxed);
	return sum < 0 ? 0 : sum;
}

/* Loads and leases are counted by different threads, so that a first token may be seen before its
 * lease: a negative number counts as 0. */
static int64_t prefill_on(const struct kvw_metrics *metrics, size_t slot, struct kvw_worker *worker)
{
	int64_t n = (int64_t)kvw_load_own_inflight(&worker->load) - decoding_on(metrics, slot);

	return n < 0 ? 0 : n;
}

static double rate_on(const struct kvw_metrics *metrics, size_t slot, int64_t now_ns)
{
	struct kvw_window_worker delta;
	int64_t span_ns = kvw_window_delta(metrics, slot, now_ns, &delta);

	return span_ns <= 0 ? 0 : (double)delta.finished * 1e9 / (double)span_ns;
}

static double mean_latency_on(const struct kvw_metrics *metrics, size_t slot, int64_t now_ns)
{
	struct kvw_window_worker delta;

	kvw_window_delta(metrics, slot, now_ns, &delta);
	if (delta.finished == 0)
		return -1;
	return (double)delta.latency_ns / 1e9 / (double)delta.finished;
}

/* Returns the sum of the _Atomic uint64_t at `offset` in the worker's tallies. */
static uint64_t tally_on(const struct kvw_metrics *metrics, size_t slot, size_t offset)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < metrics->loops; i++) {
		const char *tally = (const char *)&metrics->shards[i].workers[slot];

		sum += kvw_counted((const _Atomic uint64_t *)(const void *)(tally + offset));
	}
	return sum;
}

/* Returns the share of KV memory in use; -1: not known. */
static double kv_used(const struct kvw_worker *worker)
{
	uint16_t used = atomic_load_explicit(&worker->kv_used, memory_order_relaxed);

	return used == 0 ? -1 : (used - 1) / 1e3;
}

void kvw_metrics_worker_now(struct kvw_metrics *metrics, struct kvw_worker *worker, int64_t now_ns,
	struct kvw_worker_now *out)
{
	size_t slot = (size_t)worker->id + 1;
	struct kvw_window_worker delta;
	double span_s;

	pthread_mutex_lock(&metrics->lock);
	span_s = (double)kvw_window_delta(metrics, slot, now_ns, &delta) / 1e9;
	pthread_mutex_unlock(&metrics->lock);
	*out = (struct kvw_worker_now){
		.running = kvw_load_own_inflight(&worker->load),
		.prefilling = (uint64_t)prefill_on(metrics, slot, worker),
		.decoding = (uint64_t)decoding_on(metrics, slot),
		.kv_used = kv_used(worker),
		.requests_per_s = span_s > 0 ? (double)delta.finished / span_s : 0,
		.tokens_per_s = span_s > 0 ? (double)delta.output_tokens / span_s : 0,
		.decode_tokens = delta.decode_tokens,
		.decode_ms = delta.decode_tokens > 0
				     ? (double)delta.decode_ns / 1e6 / (double)delta.decode_tokens
				     : 0,
	};
}

/* 0: not known. */
static double room_of(const struct kvw_load *load)
{
	double tokens = (double)atomic_load_explicit(&load->room->tokens, memory_order_relaxed);

	return isinf(tokens) ? 0 : tokens;
}

static double worker_value(
	const struct kvw_collect *collect, size_t slot, struct kvw_worker *worker)
{
	switch ((enum kvw_collect_of)collect->arg) {
	case KVW_OF_RUNNING:
		return kvw_load_own_inflight(&worker->load);
	case KVW_OF_PREFILL:
		return (double)prefill_on(collect->metrics, slot, worker);
	case KVW_OF_DECODING:
		return (double)decoding_on(collect->metrics, slot);
	case KVW_OF_QPS:
		return rate_on(collect->metrics, slot, collect->now_ns);
	case KVW_OF_LATENCY:
		return mean_latency_on(collect->metrics, slot, collect->now_ns);
	case KVW_OF_HEALTHY:
		return kvw_worker_usable(worker);
	case KVW_OF_HEALTH:
		return atomic_load_explicit(&worker->health, memory_order_relaxed);
	case KVW_OF_QUEUE:
		return (double)kvw_load_queue_ns(&worker->load, collect->now_ns) / 1e9;
	case KVW_OF_FAILURES:
		return atomic_load_explicit(&worker->ejection.bad_in_row, memory_order_relaxed);
	case KVW_OF_BAD_ANSWERS:
		return (double)atomic_load_explicit(&worker->ejection.bad, memory_order_relaxed);
	case KVW_OF_STALL:
		return kvw_stall_state(&worker->stall);
	case KVW_OF_EJECTED:
		return kvw_ejection_state(&worker->ejection) != KVW_EJECTION_IN;
	case KVW_OF_EJECTIONS:
		return (double)atomic_load_explicit(
			&worker->ejection.ejections, memory_order_relaxed);
	case KVW_OF_RECOMPUTED:
		return (double)atomic_load_explicit(&worker->recomputed, memory_order_relaxed);
	case KVW_OF_KV_USED:
		return kv_used(worker);
	case KVW_OF_DECODE_TOKENS:
		return (double)tally_on(collect->metrics, slot,
			offsetof(struct kvw_worker_tally, decode_tokens));
	case KVW_OF_DECODE_SECONDS:
		return (double)tally_on(collect->metrics, slot,
			       offsetof(struct kvw_worker_tally, decode_ns)) /
		       1e9;
	case KVW_OF_PROBES_FAILED:
		return (double)atomic_load_explicit(&worker->probes_failed, memory_order_relaxed);
	case KVW_OF_GENERATION:
		return atomic_load_explicit(&worker->generation, memory_order_relaxed) -
		       worker->first_generation;
	case KVW_OF_CAPACITY:
		return (double)atomic_load_explicit(&worker->capacity_tokens, memory_order_relaxed);
	case KVW_OF_BLOCK:
		return atomic_load_explicit(&worker->block_size, memory_order_relaxed);
	case KVW_OF_KV_ROOM:
		return room_of(&worker->load);
	case KVW_OF_KV_WAIT:
		return kvw_load_room_wait_ns(&worker->load, 0) / 1e9;
	case KVW_OF_FOREIGN_WAITING:
		return atomic_load_explicit(&worker->load.foreign_waiting, memory_order_relaxed);
	case KVW_OF_FOREIGN_RUNNING:
		return kvw_load_foreign_running(&worker->load);
	case KVW_OF_FOREIGN_QUEUE:
		return (double)kvw_load_foreign_ns(
			       &worker->load, collect->now_ns, collect->now_ns) /
		       1e9;
	default:
		abort(); /* cannot happen: metrics.def gives this collector another arg */
	}
}

void kvw_collect_worker(struct kvw_collect *collect)
{
	const struct kvw_fleet *fleet = collect->metrics->fleet;
	struct kvw_label label = {collect->out.info->labels, {NULL, 0}};

	for (size_t i = 0; i < fleet->count; i++) {
		struct kvw_worker *worker = kvw_metrics_worker(collect->metrics, i);

		if (worker == NULL)
			continue;
		label.value = kvw_slice_of(worker->url);
		kvw_sample_double(&collect->out, &label, 1, worker_value(collect, i + 1, worker));
	}
}

void kvw_collect_ejections_refused(struct kvw_collect *collect)
{
	const struct kvw_ejections *all = &collect->metrics->fleet->ejections;

	kvw_sample_u64(&collect->out, NULL, 0,
		atomic_load_explicit(&all->refused, memory_order_relaxed));
}

static double learned_value(int arg, const struct kvw_worker_learned *learned)
{
	switch ((enum kvw_collect_of)arg) {
	case KVW_OF_RATE:
		return learned->prefill_tokens_per_second;
	case KVW_OF_RATE_OBSERVED:
		return learned->observed_tokens_per_second;
	case KVW_OF_RATE_SAMPLES:
		return learned->rate_samples;
	case KVW_OF_CAPACITY_SHARE:
		return learned->capacity_share;
	default:
		abort();
	}
}

/* Writes no samples for a strategy that learns nothing. */
void kvw_collect_learned(struct kvw_collect *collect)
{
	const struct kvw_fleet *fleet = collect->metrics->fleet;
	struct kvw_strategy *strategy = fleet->strategy;
	struct kvw_label label = {collect->out.info->labels, {NULL, 0}};

	if (strategy == NULL || strategy->ops->learned == NULL)
		return;
	for (size_t i = 0; i < fleet->count; i++) {
		const struct kvw_worker *worker = kvw_metrics_worker(collect->metrics, i);
		struct kvw_worker_learned learned;

		if (worker == NULL)
			continue;
		strategy->ops->learned(strategy, worker->id, &learned);
		label.value = kvw_slice_of(worker->url);
		kvw_sample_double(&collect->out, &label, 1, learned_value(collect->arg, &learned));
	}
}

static size_t compared_offset(int arg)
{
	switch ((enum kvw_collect_of)arg) {
	case KVW_OF_COMPARED:
		return offsetof(struct kvw_worker_tally, compared);
	case KVW_OF_PREDICTED:
		return offsetof(struct kvw_worker_tally, predicted);
	case KVW_OF_CACHED:
		return offsetof(struct kvw_worker_tally, cached);
	case KVW_OF_MISSING:
		return offsetof(struct kvw_worker_tally, missing);
	case KVW_OF_UNFORESEEN:
		return offsetof(struct kvw_worker_tally, unforeseen);
	case KVW_OF_EXACT_RIGHT:
		return offsetof(struct kvw_worker_tally, exact_right);
	case KVW_OF_EXACT_WRONG:
		return offsetof(struct kvw_worker_tally, exact_wrong);
	default:
		abort();
	}
}

void kvw_collect_compared(struct kvw_collect *collect)
{
	const struct kvw_metrics *metrics = collect->metrics;
	size_t offset = compared_offset(collect->arg);
	struct kvw_label label = {collect->out.info->labels, {NULL, 0}};

	for (size_t slot = 1; slot < kvw_metrics_slots(metrics); slot++) {
		if (!kvw_metrics_shown(metrics, slot))
			continue;
		label.value = kvw_worker_label(metrics, slot);
		kvw_sample_u64(&collect->out, &label, 1, tally_on(metrics, slot, offset));
	}
}

void kvw_metrics_worker_tokens(
	const struct kvw_metrics *metrics, uint32_t worker_id, struct kvw_worker_tokens *out)
{
	const size_t slot = (size_t)worker_id + 1;

	*out = (struct kvw_worker_tokens){0};
	for (size_t i = 0; i < metrics->loops; i++) {
		const struct kvw_metrics_shard *shard = &metrics->shards[i];
		const struct kvw_worker_tally *tally = &shard->workers[slot];

		out->compared += atomic_load_explicit(&tally->compared, memory_order_relaxed);
		out->predicted += atomic_load_explicit(&tally->predicted, memory_order_relaxed);
		out->cached += atomic_load_explicit(&tally->cached, memory_order_relaxed);
		for (size_t model = 0; model < KVW_MODEL_SLOTS; model++) {
			const struct kvw_server_cell *cell = atomic_load_explicit(
				&shard->server_cells[slot * KVW_MODEL_SLOTS + model],
				memory_order_acquire);

			if (cell != NULL)
				out->prompt += atomic_load_explicit(
					&cell->input_tokens, memory_order_relaxed);
		}
	}
}

void kvw_collect_strategy(struct kvw_collect *collect)
{
	struct kvw_strategy *strategy = collect->metrics->fleet->strategy;
	struct kvw_strategy_stats stats = {0};
	uint64_t value = 0;

	if (strategy != NULL && strategy->ops->stats != NULL)
		strategy->ops->stats(strategy, &stats);
	switch ((enum kvw_collect_of)collect->arg) {
	case KVW_OF_TREE_BYTES:
		value = stats.bytes;
		break;
	case KVW_OF_TREE_LIMIT:
		value = stats.bytes_limit;
		break;
	case KVW_OF_TREE_NODES:
		value = stats.nodes;
		break;
	case KVW_OF_TREE_CHUNKS:
		value = stats.chunks;
		break;
	case KVW_OF_TREE_EVICTED:
		value = stats.evicted_chunks;
		break;
	case KVW_OF_TREE_PURGES:
		value = stats.purges;
		break;
	case KVW_OF_SESSIONS:
		value = stats.sessions;
		break;
	default:
		value = kvw_exact_gauge(&stats, (enum kvw_collect_of)collect->arg);
		break;
	}
	kvw_sample_u64(&collect->out, NULL, 0, value);
}

void kvw_collect_loop_age(struct kvw_collect *collect)
{
	const struct kvw_metrics_sources *sources = &collect->metrics->sources;

	for (size_t i = 0; sources->loop_turn_ns != NULL && i < sources->loop_count; i++) {
		int64_t turn_ns =
			atomic_load_explicit(&sources->loop_turn_ns[i], memory_order_relaxed);
		char number[24];
		struct kvw_label label = {"loop", {number, 0}};
		int64_t age_ns = collect->now_ns - turn_ns;

		if (turn_ns == 0)
			continue;
		label.value.len = kvw_decimal(number, i);
		kvw_sample_double(&collect->out, &label, 1, age_ns < 0 ? 0 : (double)age_ns / 1e9);
	}
}

void kvw_collect_dropped(struct kvw_collect *collect)
{
	const struct kvw_access_log *access_log = collect->metrics->sources.access_log;
	uint64_t n = 0;

	if (collect->arg == KVW_OF_LOG)
		n = kvw_log_dropped();
	else if (access_log != NULL)
		n = kvw_access_log_dropped(access_log);
	kvw_sample_u64(&collect->out, NULL, 0, n);
}

void kvw_collect_build_info(struct kvw_collect *collect)
{
	const struct kvw_strategy *strategy = collect->metrics->fleet->strategy;
	struct kvw_label labels[] = {
		{"version", KVW_SLICE(KVW_VERSION)},
		{"compiler", KVW_SLICE(__VERSION__)},
		{"strategy", kvw_slice_of(strategy == NULL ? "none" : strategy->ops->name)},
	};

	kvw_sample_u64(&collect->out, labels, 3, 1);
}

static double memory_used_percent(void)
{
	unsigned long long total = 0, available = 0;
	char line[128];
	FILE *file = fopen("/proc/meminfo", "re");

	if (file == NULL)
		return 0;
	while (fgets(line, sizeof(line), file) != NULL && (total == 0 || available == 0)) {
		sscanf(line, "MemTotal: %llu", &total);
		sscanf(line, "MemAvailable: %llu", &available);
	}
	fclose(file);
	return total == 0 ? 0 : 100.0 * (double)(total - available) / (double)total;
}

static double disk_used_percent(void)
{
	struct statvfs fs;
	double used, usable;

	if (statvfs("/", &fs) != 0)
		return 0;
	used = (double)(fs.f_blocks - fs.f_bfree);
	usable = used + (double)fs.f_bavail;
	return usable <= 0 ? 0 : 100.0 * used / usable;
}

void kvw_collect_host(struct kvw_collect *collect)
{
	double value;

	if (collect->arg == KVW_OF_CPU)
		value = kvw_window_cpu_percent(collect->metrics, collect->now_ns);
	else if (collect->arg == KVW_OF_MEMORY)
		value = memory_used_percent();
	else
		value = disk_used_percent();
	kvw_sample_double(&collect->out, NULL, 0, value);
}

/* Returns the bytes of a field of /proc/self/statm, which counts pages; field 0 is the size, 1 the
 * resident set. */
static double memory_bytes(int field)
{
	unsigned long long pages[2] = {0, 0};
	FILE *file = fopen("/proc/self/statm", "re");

	if (file == NULL)
		return 0;
	if (fscanf(file, "%llu %llu", &pages[0], &pages[1]) != 2)
		pages[0] = pages[1] = 0;
	fclose(file);
	return (double)pages[field] * (double)sysconf(_SC_PAGESIZE);
}

static double cpu_seconds(void)
{
	struct rusage usage;

	getrusage(RUSAGE_SELF, &usage);
	return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
	       (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

void kvw_collect_process(struct kvw_collect *collect)
{
	struct rlimit limit = {0};
	double value = 0;

	switch ((enum kvw_collect_of)collect->arg) {
	case KVW_OF_START_TIME:
		value = (double)collect->metrics->start_wall_ns / 1e9;
		break;
	case KVW_OF_CPU_SECONDS:
		value = cpu_seconds();
		break;
	case KVW_OF_VIRTUAL:
		value = memory_bytes(0);
		break;
	case KVW_OF_RSS:
		value = memory_bytes(1);
		break;
	case KVW_OF_OPEN_FDS:
		value = (double)collect->metrics->window.open_fds;
		break;
	case KVW_OF_MAX_FDS:
		getrlimit(RLIMIT_NOFILE, &limit);
		value = (double)limit.rlim_cur;
		break;
	default:
		abort();
	}
	kvw_sample_double(&collect->out, NULL, 0, value);
}
