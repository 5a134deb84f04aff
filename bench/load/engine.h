/*
 * engine.h - runs a workload (workload.h) against an engine: `kvbench engine`.
 */
#ifndef KVB_ENGINE_H
#define KVB_ENGINE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "bench/load/engine_options.h"
#include "bench/load/engine_stats.h"
#include "kvway/err.h"
#include "bench/load/outcome.h"

struct event_base;
struct json_t;

/* The results of a run, as reports need them. All borrowed. */
struct kvb_engine_outcome {
	const struct kvb_engine_options *options; /* model and tokens_per_gb have been resolved */
	struct kvb_engine_stats *stats;
	struct kvb_result result; /* figures of the measured requests */
	const struct kvb_tally *tally;
	double elapsed_s; /* time from the first request's due time to the end of the workload */
	uint64_t planned, asked;
	uint64_t warm_up, warm_up_failed;
	uint64_t stale; /* kept connections that the server had closed in the meantime */
	bool interrupted;
};

/*
 * Does the warm-up, the workload and the report. *failed: a measured request failed, or the run was
 * interrupted. Errors are written to stderr.
 */
enum kvw_err kvb_engine(struct event_base *base, const struct kvb_engine_options *options,
	bool *failed) KVW_MUST_CHECK;

/* Makes the content of bench_summary.json, which the caller owns. */
struct json_t *kvb_engine_summary(const struct kvb_engine_outcome *outcome);
/* Writes it to the place that the options name. KVW_EIO: an error was written to stderr. */
enum kvw_err kvb_engine_write(const struct kvb_engine_outcome *outcome) KVW_MUST_CHECK;
void kvb_engine_print(const struct kvb_engine_outcome *outcome, FILE *out);

/*
 * Reads from an LMCache server's /status how many tokens of this model a GB of KV cache holds, over
 * all its ranks. KVW_EPROTO, KVW_ENOTFOUND: a message was written to error.
 */
enum kvw_err kvb_status_tokens_per_gb(
	const char *text, size_t len, const char *model, int64_t *out, FILE *error) KVW_MUST_CHECK;

#endif
