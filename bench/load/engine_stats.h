/*
 * engine_stats.h - what a run of `kvbench engine` has seen, in the terms of `lmcache bench engine`.
 *
 * A request's times count from when its first byte went out on a connection that stood; what it
 * waited for a connection is told apart. All times are seconds of the engine: real ones multiplied
 * by its speed. Percentiles are linear between ranks, (n - 1) * p / 100.
 */
#ifndef KVB_ENGINE_STATS_H
#define KVB_ENGINE_STATS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "kvway/err.h"
#include "bench/load/outcome.h"
#include "bench/load/stats.h"

/* One finished request. */
struct kvb_engine_request {
	const char *id;
	bool ok;
	double ttft_s;                       /* -1 where it failed */
	double latency_s;                    /* to the answer's end */
	int64_t input_tokens, output_tokens; /* 0 where it failed */
	double decode_speed; /* output tokens / (end - first token), the first one counted; or 0 */
	double submit_s, first_s, finish_s; /* seconds since 1970, real; first_s 0: none */
	double connect_s;                   /* waited for a connection */
	const char *error;                  /* "" where it did not fail */
};

struct kvb_engine_stats {
	struct kvb_samples ttft_ms, latency_ms, decode_speed, connect_ms, tpot_ms;
	uint64_t ok, failed;
	uint64_t input_tokens, output_tokens;
	FILE *csv; /* rows are written as requests end; NULL: none */
};

/*
 * Out of what the run recorded. wall_ns: what the clock has to be increased by to give the time
 * since 1970. id and the record are borrowed.
 */
struct kvb_engine_request kvb_engine_request_of(
	const struct kvb_record *record, const char *id, double speed, int64_t wall_ns);
/* Makes the file and writes its first line. KVW_EIO: said on error. */
enum kvw_err kvb_engine_stats_open_csv(
	struct kvb_engine_stats *stats, const char *path, FILE *error) KVW_MUST_CHECK;
void kvb_engine_stats_add(struct kvb_engine_stats *stats, const struct kvb_engine_request *request);
/* Closes the file. KVW_EIO: not all of it was written. */
enum kvw_err kvb_engine_stats_close_csv(struct kvb_engine_stats *stats) KVW_MUST_CHECK;
void kvb_engine_stats_finish(struct kvb_engine_stats *stats);

#endif
