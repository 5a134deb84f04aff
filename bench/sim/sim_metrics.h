/*
 * sim_metrics.h - counters and histograms of one worker, and its /metrics page.
 *
 * Names, labels, order and buckets are those of vLLM 0.32, for the metrics that a router or a
 * dashboard reads. Times are of the wall clock, as a scraper sees them: simulated ones divided by
 * the speed.
 */
#ifndef KVB_SIM_METRICS_H
#define KVB_SIM_METRICS_H

#include <stddef.h>
#include <stdint.h>

#include "bench/load/mem.h"

#define KVB_BUCKETS_MOST 24

/* A Prometheus histogram; its bounds are in a static table. */
struct kvb_histogram {
	const double *bounds;
	size_t count;                       /* of bounds */
	uint64_t buckets[KVB_BUCKETS_MOST]; /* not cumulative; the last one counts up to +Inf */
	uint64_t total;
	double sum;
};

struct kvb_metrics {
	struct kvb_histogram ttft, itl, e2e, queue, prefill, decode;
	struct kvb_histogram prompt_tokens, generation_tokens, step_tokens;
	struct kvb_histogram hit_rate; /* hit rate of requests, over all tiers */
	uint64_t finished_stop, finished_length;
	uint64_t answered_prompt, answered_cached, answered_generated; /* tokens of finished answers */
};

struct kvb_worker;

/* Histograms of tokens have bounds up to the longest context. */
void kvb_metrics_init(struct kvb_metrics *metrics, uint32_t max_model_len);
void kvb_histogram_add(struct kvb_histogram *histogram, double value);
void kvb_metrics_write(struct kvb_worker *worker, struct kvb_buf *out);

#endif
