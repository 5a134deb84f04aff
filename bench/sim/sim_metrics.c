/*
 * sim_metrics.c - the /metrics page.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "bench/sim/sim_reporter.h"
#include "bench/sim/sim_store.h"
#include "bench/sim/sim_worker.h"

static const double ttft_bounds[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
	0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560};
static const double itl_bounds[] = {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75,
	1, 2.5, 5, 7.5, 10, 20, 40, 80};
static const double request_bounds[] = {0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50,
	60, 120, 240, 480, 960, 1920, 7680};
static const double token_bounds[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000,
	20000, 50000, 100000, 200000, 500000, 1000000};

static const double step_bounds[] = {
	1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
static const double rate_bounds[] = {0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1};

static void histogram_init(struct kvb_histogram *histogram, const double *bounds, size_t count)
{
	*histogram = (struct kvb_histogram){.bounds = bounds, .count = count};
}

#define HISTOGRAM_INIT(histogram, bounds)                                                          \
	histogram_init(histogram, bounds, sizeof(bounds) / sizeof((bounds)[0]))

void kvb_metrics_init(struct kvb_metrics *metrics, uint32_t max_model_len)
{
	size_t bounds = sizeof(token_bounds) / sizeof(token_bounds[0]);

	while (bounds > 1 && token_bounds[bounds - 1] > max_model_len)
		bounds--;
	memset(metrics, 0, sizeof(*metrics));
	HISTOGRAM_INIT(&metrics->ttft, ttft_bounds);
	HISTOGRAM_INIT(&metrics->itl, itl_bounds);
	HISTOGRAM_INIT(&metrics->e2e, request_bounds);
	HISTOGRAM_INIT(&metrics->queue, request_bounds);
	HISTOGRAM_INIT(&metrics->prefill, request_bounds);
	HISTOGRAM_INIT(&metrics->decode, request_bounds);
	HISTOGRAM_INIT(&metrics->step_tokens, step_bounds);
	HISTOGRAM_INIT(&metrics->hit_rate, rate_bounds);
	histogram_init(&metrics->prompt_tokens, token_bounds, bounds);
	histogram_init(&metrics->generation_tokens, token_bounds, bounds);
}

void kvb_histogram_add(struct kvb_histogram *histogram, double value)
{
	size_t i = 0;

	while (i < histogram->count && value > histogram->bounds[i])
		i++;
	histogram->buckets[i]++;
	histogram->total++;
	histogram->sum += value;
}

static void add_head(struct kvb_buf *out, const char *name, const char *type, const char *help)
{
	kvb_buf_printf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

/* Writes one sample with the labels engine and model_name; `more` is a further label or "". */
static void add_sample(struct kvb_worker *worker, struct kvb_buf *out, const char *name,
	const char *before, const char *after, double value)
{
	kvb_buf_printf(out, "%s{engine=\"%u\",%smodel_name=\"%s\"%s} ", name, worker->global_rank,
		before, worker->options->model, after);
	kvb_buf_number(out, value);
	kvb_buf_add(out, "\n", 1);
}

static void add_one(struct kvb_worker *worker, struct kvb_buf *out, const char *name,
	const char *type, const char *help, double value)
{
	add_head(out, name, type, help);
	add_sample(worker, out, name, "", "", value);
}

static void add_histogram(struct kvb_worker *worker, struct kvb_buf *out, const char *name,
	const char *help, const struct kvb_histogram *histogram)
{
	uint64_t below = 0;
	char series[80], label[48];

	add_head(out, name, "histogram", help);
	snprintf(series, sizeof(series), "%s_bucket", name);
	for (size_t i = 0; i <= histogram->count; i++) {
		struct kvb_buf bound = {0};

		below += histogram->buckets[i];
		if (i < histogram->count)
			kvb_buf_number(&bound, histogram->bounds[i]);
		else
			kvb_buf_text(&bound, "+Inf");
		snprintf(label, sizeof(label), "le=\"%.*s\",", (int)bound.len, bound.data);
		add_sample(worker, out, series, label, "", (double)below);
		kvb_buf_finish(&bound);
	}
	snprintf(series, sizeof(series), "%s_count", name);
	add_sample(worker, out, series, "", "", (double)histogram->total);
	snprintf(series, sizeof(series), "%s_sum", name);
	add_sample(worker, out, series, "", "", histogram->sum);
}

static void add_process(struct kvb_worker *worker, struct kvb_buf *out)
{
	struct rusage usage;
	double cpu = 0;

	if (getrusage(RUSAGE_SELF, &usage) == 0)
		cpu = (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
		      (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
	add_head(out, "process_start_time_seconds", "gauge",
		"Start time of the process since unix epoch in seconds.");
	kvb_buf_text(out, "process_start_time_seconds ");
	kvb_buf_number(out, worker->start_s);
	kvb_buf_text(out, "\n");
	add_head(out, "process_cpu_seconds_total", "counter",
		"Total user and system CPU time spent in seconds.");
	kvb_buf_text(out, "process_cpu_seconds_total ");
	kvb_buf_number(out, cpu);
	kvb_buf_text(out, "\n");
}

static void add_state(
	struct kvb_worker *worker, struct kvb_buf *out, const struct kvb_engine_stats *stats)
{
	bool awake = !worker->sleeping;

	add_one(worker, out, "vllm:num_requests_running", "gauge",
		"Number of requests in model execution batches.", stats->running);
	add_one(worker, out, "vllm:num_requests_waiting", "gauge",
		"Number of requests waiting to be processed.",
		worker->sleeping || worker->paused ? 0 : stats->waiting);
	add_head(out, "vllm:num_requests_waiting_by_reason", "gauge",
		"Number of waiting requests by reason.");
	add_sample(worker, out, "vllm:num_requests_waiting_by_reason", "", ",reason=\"capacity\"",
		worker->sleeping || worker->paused ? 0 : stats->waiting - stats->deferred);
	add_sample(worker, out, "vllm:num_requests_waiting_by_reason", "", ",reason=\"deferred\"",
		worker->sleeping || worker->paused ? 0 : stats->deferred);
	add_head(out, "vllm:engine_sleep_state", "gauge", "Engine sleep state.");
	add_sample(worker, out, "vllm:engine_sleep_state", "", ",sleep_state=\"awake\"", awake);
	add_sample(worker, out, "vllm:engine_sleep_state", "", ",sleep_state=\"weights_offloaded\"",
		!awake && worker->sleep_level == 1);
	add_sample(worker, out, "vllm:engine_sleep_state", "", ",sleep_state=\"discard_all\"",
		!awake && worker->sleep_level == 2);
	add_one(worker, out, "vllm:kv_cache_usage_perc", "gauge",
		"KV-cache usage. 1 means 100 percent usage.",
		(double)stats->blocks_used / stats->blocks_usable);
}

static void add_counters(
	struct kvb_worker *worker, struct kvb_buf *out, const struct kvb_engine_stats *stats)
{
	add_one(worker, out, "vllm:prefix_cache_queries_total", "counter",
		"Prefix cache queries, in terms of number of queried tokens.",
		(double)stats->prompt_tokens);
	add_one(worker, out, "vllm:prefix_cache_hits_total", "counter",
		"Prefix cache hits, in terms of number of cached tokens.",
		(double)(stats->cached_tokens - stats->external_tokens));
	if (worker->store != NULL || worker->options->fragments.on || worker->options->nixl.on) {
		add_one(worker, out, "vllm:external_prefix_cache_queries_total", "counter",
			"External prefix cache queries from KV connector cross-instance cache "
			"sharing, in terms of number of queried tokens.",
			(double)(stats->prompt_tokens -
				 (stats->cached_tokens - stats->external_tokens)));
		add_one(worker, out, "vllm:external_prefix_cache_hits_total", "counter",
			"External prefix cache hits from KV connector cross-instance cache "
			"sharing, in terms of number of cached tokens.",
			(double)stats->external_tokens);
	}
	add_one(worker, out, "vllm:num_preemptions_total", "counter",
		"Cumulative number of preemption from the engine.", (double)stats->preemptions);
	add_one(worker, out, "vllm:prompt_tokens_total", "counter",
		"Number of prefill tokens processed.", (double)stats->prompt_tokens);
	add_head(out, "vllm:prompt_tokens_by_source_total", "counter",
		"Number of prompt tokens by source.");
	add_sample(worker, out, "vllm:prompt_tokens_by_source_total", "",
		",source=\"local_compute\"", (double)(stats->prompt_tokens - stats->cached_tokens));
	add_sample(worker, out, "vllm:prompt_tokens_by_source_total", "",
		",source=\"local_cache_hit\"",
		(double)(stats->cached_tokens - stats->external_tokens));
	add_sample(worker, out, "vllm:prompt_tokens_by_source_total", "",
		",source=\"external_kv_transfer\"", (double)stats->external_tokens);
	add_one(worker, out, "vllm:prompt_tokens_cached_total", "counter",
		"Number of cached prompt tokens (local + external).", (double)stats->cached_tokens);
	add_one(worker, out, "vllm:generation_tokens_total", "counter",
		"Number of generation tokens processed.", (double)stats->generated_tokens);
	if (worker->options->draft_tokens > 0) {
		double drafts = floor((double)stats->decoded_tokens /
			(1 + worker->options->draft_tokens * worker->options->draft_share));

		add_one(worker, out, "vllm:spec_decode_num_drafts_total", "counter", "Number of spec decoding drafts.",
			drafts);
		drafts *= worker->options->draft_tokens;
		add_one(worker, out, "vllm:spec_decode_num_draft_tokens_total", "counter", "Number of draft tokens.",
			drafts);
		add_one(worker, out, "vllm:spec_decode_num_accepted_tokens_total", "counter",
			"Number of accepted tokens.", floor(drafts * worker->options->draft_share));
	}
	add_head(out, "vllm:request_success_total", "counter",
		"Count of successfully processed requests.");
	add_sample(worker, out, "vllm:request_success_total", "finished_reason=\"stop\",", "",
		(double)worker->metrics.finished_stop);
	add_sample(worker, out, "vllm:request_success_total", "finished_reason=\"length\",", "",
		(double)worker->metrics.finished_length);
	add_sample(worker, out, "vllm:request_success_total", "finished_reason=\"abort\",", "", 0);
}

static void add_cache_config(struct kvb_worker *worker, struct kvb_buf *out)
{
	const struct kvb_options *o = worker->options;
	uint32_t blocks = o->kv_tokens / o->block_size;

	add_head(
		out, "vllm:cache_config_info", "gauge", "Information of the LLMEngine CacheConfig");
	kvb_buf_printf(out,
		"vllm:cache_config_info{_block_size_resolved=\"True\",block_size=\"%u\","
		"cache_dtype=\"auto\",effective_attention_block_size=\"%u\","
		"enable_prefix_caching=\"True\",engine=\"%u\",gpu_memory_utilization=\"0.92\","
		"hash_block_size=\"None\",is_attention_free=\"False\","
		"kv_cache_max_concurrency=\"%g\",kv_cache_size_tokens=\"%u\","
		"num_cpu_blocks=\"None\",num_gpu_blocks=\"%u\",num_gpu_blocks_override=\"None\","
		"prefix_caching_hash_algo=\"sha256\",sliding_window=\"None\"} 1.0\n",
		o->block_size, o->block_size, worker->global_rank,
		(double)blocks * o->block_size / o->max_model_len, blocks * o->block_size,
		blocks * o->ranks); /* vLLM's client of the engines adds their blocks up */
}

static void add_by_tier(struct kvb_worker *worker, struct kvb_buf *out, const char *name,
	const char *help, const uint64_t values[KVB_SEQ_TIERS])
{
	static const char *const tiers[KVB_SEQ_TIERS] = {
		",tier=\"l1\"", ",tier=\"nvme\"", ",tier=\"l2\""};

	add_head(out, name, "counter", help);
	for (int i = 0; i < KVB_SEQ_TIERS; i++)
		add_sample(worker, out, name, "", tiers[i], (double)values[i]);
}

/* Writes kvsim's own figures about the tiers, the counters of a worker's connector, then
 * libkvtier's own page, whose bytes are shrunk ones. */
static void add_tiers(
	struct kvb_worker *worker, struct kvb_buf *out, const struct kvb_engine_stats *engine)
{
	const struct kvb_tier_options *o = &worker->options->tier;
	struct kvb_store_stats s;
	char *text = NULL;

	if (worker->store == NULL)
		return;
	kvb_store_stats(worker->store, &s);
	add_one(worker, out, "kvsim:tier_shrink", "gauge",
		"Payloads and capacities of the tiers are divided by this.", o->shrink);
	add_one(worker, out, "kvsim:tier_timing_modelled", "gauge",
		"1: transfers take modelled times; 0: measured ones.", o->modelled);
	add_one(worker, out, "kvsim:wrong_bytes_total", "counter",
		"Bytes that came back other than they were stored.", (double)s.wrong_bytes);
	add_one(worker, out, "kvsim:checked_chunks_total", "counter",
		"Chunks whose bytes came back and were compared.", (double)s.checked_chunks);
	add_by_tier(worker, out, "kvsim:loaded_tokens_total",
		"Tokens whose KV was loaded from a tier below the device.", s.loaded_tokens);
	add_one(worker, out, "kvsim:tier_fetches_total", "counter",
		"Prompts that loaded something.", (double)s.fetches);
	add_one(worker, out, "kvsim:tier_fetches_short_total", "counter",
		"Of these, that got less than had been found.", (double)s.fetches_short);
	add_one(worker, out, "kvsim:tier_left_chunks_total", "counter",
		"Chunks that were found, but computed again because that was faster.",
		(double)s.left_chunks);
	add_one(worker, out, "kvsim:stored_chunks_total", "counter",
		"Chunks that were put and not there before.", (double)s.puts);
	add_one(worker, out, "kvsim:refused_chunks_total", "counter", "Chunks that found no room.",
		(double)s.puts_refused);
	add_one(worker, out, "kvsim:tier_waits_total", "counter",
		"Times that simulated time stood still for a tier.", (double)s.waits);
	add_one(worker, out, "kvsim:tier_late_total", "counter",
		"Loads and questions that were not waited for any longer.", (double)s.given_up);
	add_one(worker, out, "lmcache:num_vllm_hit_tokens_total", "counter",
		"Tokens found in the device's cache before the tiers were asked.",
		(double)(engine->cached_tokens - engine->external_tokens));
	add_histogram(worker, out, "lmcache:request_cache_hit_rate",
		"Share of a request's prompt that some cache had.", &worker->metrics.hit_rate);
	if (kvt_metrics(kvb_store_cache(worker->store), &text) == KVT_OK)
		kvb_buf_text(out, text);
	kvt_text_free(text);
}

/* Writes that the worker uses fragments, by the name that kvway looks for; then kvsim's own
 * figures. */
static void add_fragments(struct kvb_worker *worker, struct kvb_buf *out)
{
	const struct kvb_fragments *fragments = kvb_reporter_fragments(worker->reporter);
	struct kvb_fragments_stats s;

	if (fragments == NULL)
		return;
	kvb_fragments_stats(fragments, &s);
	add_one(worker, out, "kvtier:fragments_enabled", "gauge",
		"1: cached text that is not a prefix is reused.", 1);
	add_one(worker, out, "kvsim:fragments_looked_up_total", "counter",
		"Segments of prompts behind their exact prefixes.", (double)s.segments);
	add_one(worker, out, "kvsim:fragments_found_total", "counter",
		"Of these, those that were stored.", (double)s.found);
	add_one(worker, out, "kvsim:fragment_tokens_total", "counter",
		"Tokens that were taken from fragments.", (double)s.reused_tokens);
	add_one(worker, out, "kvsim:fragment_moved_bytes_total", "counter",
		"Bytes of keys that were moved to their place.", (double)s.moved_bytes);
}

/* Writes the page of one rank. */
static void write_rank(struct kvb_worker *worker, struct kvb_buf *out)
{
	const struct kvb_metrics *m = &worker->metrics;
	struct kvb_engine_stats stats;

	kvb_engine_stats(worker->engine, &stats);
	add_state(worker, out, &stats);
	add_counters(worker, out, &stats);
	add_histogram(worker, out, "vllm:request_prompt_tokens",
		"Number of prefill tokens processed.", &m->prompt_tokens);
	add_histogram(worker, out, "vllm:request_generation_tokens",
		"Number of generation tokens processed.", &m->generation_tokens);
	add_histogram(worker, out, "vllm:time_to_first_token_seconds",
		"Histogram of time to first token in seconds.", &m->ttft);
	add_histogram(worker, out, "vllm:inter_token_latency_seconds",
		"Histogram of inter-token latency in seconds.", &m->itl);
	add_histogram(worker, out, "vllm:e2e_request_latency_seconds",
		"Histogram of e2e request latency in seconds.", &m->e2e);
	add_histogram(worker, out, "vllm:request_queue_time_seconds",
		"Histogram of time spent in WAITING phase for request.", &m->queue);
	add_histogram(worker, out, "vllm:request_prefill_time_seconds",
		"Histogram of time spent in PREFILL phase for request.", &m->prefill);
	add_histogram(worker, out, "vllm:request_decode_time_seconds",
		"Histogram of time spent in DECODE phase for request.", &m->decode);
	add_histogram(worker, out, "vllm:iteration_tokens_total",
		"Histogram of number of tokens per engine_step.", &m->step_tokens);
	add_cache_config(worker, out);
	add_tiers(worker, out, &stats);
	add_fragments(worker, out);
}

/* Merges the ranks' pages, which differ in labels and values alone: samples of a metric follow
 * each other, comments come once. */
void kvb_metrics_write(struct kvb_worker *worker, struct kvb_buf *out)
{
	uint32_t ranks = worker->options->ranks;
	struct kvb_buf *pages = kvb_alloc(ranks, sizeof(*pages));
	size_t *at = kvb_alloc(ranks, sizeof(*at));

	add_process(worker, out);
	for (uint32_t i = 0; i < ranks; i++)
		write_rank(worker->ranks[i], &pages[i]);
	while (at[0] < pages[0].len)
		for (uint32_t i = 0; i < ranks; i++) {
			const char *line = pages[i].data + at[i];
			const char *end = memchr(line, '\n', pages[i].len - at[i]);
			size_t len = end == NULL ? pages[i].len - at[i] : (size_t)(end - line) + 1;

			if (i == 0 || line[0] != '#')
				kvb_buf_add(out, line, len);
			at[i] += len;
		}
	for (uint32_t i = 0; i < ranks; i++)
		kvb_buf_finish(&pages[i]);
	free(pages);
	free(at);
}
