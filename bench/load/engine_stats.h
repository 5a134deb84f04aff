/*
 * engine_stats.h - the statistics of a run of `kvbench engine`, as `lmcache bench engine` defines
 * them.
 *
 * A request's times count from the moment when its first byte was sent on an established
 * connection; the wait for a connection is given separately. All times are seconds of the engine:
 * real ones multiplied by its speed. Percentiles are linear between ranks, (n - 1) * p / 100.
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
	double latency_s;                    /* time to the answer's end */
	int64_t input_tokens, output_tokens; /* 0 where it failed */
	/* output tokens, the first one included, / (end - first token); or 0 */
	double decode_speed;
	/* seconds since 1970, in real time; first_s 0: there was none */
	double submit_s, first_s, finish_s;
	double connect_s;                   /* waited for a connection */
	const char *error;                  /* "" if the request did not fail */
};

struct kvb_engine_stats {
	struct kvb_samples ttft_ms, latency_ms, decode_speed, connect_ms, tpot_ms;
	uint64_t ok, failed;
	uint64_t input_tokens, output_tokens;
	FILE *csv; /* a row is written when a request ends; NULL: no file */
};

/*
 * Makes it from the record of a run. wall_ns: difference between the clock and the time since 1970.
 * id and the record are borrowed.
 */
struct kvb_engine_request kvb_engine_request_of(
	const struct kvb_record *record, const char *id, double speed, int64_t wall_ns);
/* Creates the file and writes its first line. KVW_EIO: a message was written to error. */
enum kvw_err kvb_engine_stats_open_csv(
	struct kvb_engine_stats *stats, const char *path, FILE *error) KVW_MUST_CHECK;
void kvb_engine_stats_add(struct kvb_engine_stats *stats, const struct kvb_engine_request *request);
/* Closes the file. KVW_EIO: some of the text could not be written. */
enum kvw_err kvb_engine_stats_close_csv(struct kvb_engine_stats *stats) KVW_MUST_CHECK;
void kvb_engine_stats_finish(struct kvb_engine_stats *stats);

#endif
