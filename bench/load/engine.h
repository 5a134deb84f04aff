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

/* A run that is over, as reports see it. All borrowed. */
struct kvb_engine_outcome {
	const struct kvb_engine_options *options; /* model and tokens_per_gb are resolved */
	struct kvb_engine_stats *stats;
	struct kvb_result result; /* of the measured requests: tokens apart, cached share */
	const struct kvb_tally *tally;
	double elapsed_s; /* from the first request's due time to the end of the workload */
	uint64_t planned, asked;
	uint64_t warm_up, warm_up_failed;
	uint64_t stale; /* kept-alive connections that the server had closed meanwhile */
	bool interrupted;
};

/*
 * Warm-up, workload, report. *failed: some measured request failed, or the run was interrupted.
 * Errors are said on stderr.
 */
enum kvw_err kvb_engine(struct event_base *base, const struct kvb_engine_options *options,
	bool *failed) KVW_MUST_CHECK;

/* bench_summary.json's content; caller owns it. */
struct json_t *kvb_engine_summary(const struct kvb_engine_outcome *outcome);
/* Writes it where the options say. KVW_EIO: said on stderr. */
enum kvw_err kvb_engine_write(const struct kvb_engine_outcome *outcome) KVW_MUST_CHECK;
void kvb_engine_print(const struct kvb_engine_outcome *outcome, FILE *out);

/*
 * What an LMCache server's /status says a GB of KV cache holds of this model, over all its ranks.
 * KVW_EPROTO, KVW_ENOTFOUND: said on error.
 */
enum kvw_err kvb_status_tokens_per_gb(
	const char *text, size_t len, const char *model, int64_t *out, FILE *error) KVW_MUST_CHECK;

#endif
