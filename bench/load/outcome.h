/*
 * outcome.h - the records of a run of kvbench, and the figures computed from them.
 *
 * Each finished request becomes one record; the tally keeps samples and sums. Times in records are
 * real nanoseconds, figures are in seconds of the workers: multiplied by the speed at which these
 * run.
 */
#ifndef KVB_OUTCOME_H
#define KVB_OUTCOME_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kvway/err.h"
#include "bench/load/stats.h"

#define KVB_ERROR_KINDS 32

/* A request that has ended. Times count from the moment when it was sent. */
struct kvb_record {
	bool ok;
	const char *error;         /* if it failed: the kind of failure, one short line; borrowed */
	int64_t late_ns;           /* time between when it was due and when it was sent */
	int64_t ttft_ns;           /* time to the first content */
	int64_t tries_ns;          /* time until it was sent the last time; 0: it was sent once */
	int64_t e2e_ns;            /* time to the answer's end */
	int64_t prompt_tokens;     /* from the answer's usage, else the planned number */
	int64_t completion_tokens; /* from the answer's usage, else the number of content events */
	bool cached_known;
	int64_t cached_tokens;
	/* on the clock: when it was given to the HTTP client, which may have to connect first */
	int64_t sent_ns;
	int64_t written_ns; /* on the clock: when its first byte was sent; 0: never */
	int64_t first_ns;   /* the first content; 0: none */
	int64_t end_ns;
};

/* The service level that goodput counts. */
struct kvb_slo {
	double ttft_s;
	double ttft_tokens_per_s; /* a prompt of n tokens may take n / this many seconds longer */
	double tpot_s;
};

struct kvb_tally {
	double speed;
	struct kvb_slo slo;
	struct kvb_samples ttft_s, itl_s, tpot_s, e2e_s, late_s; /* real seconds */
	struct kvb_samples last_ttft_s; /* counted from when a request was sent the last time */
	struct kvb_samples refused_s;   /* time until each answer 429 or 503 came */
	/* how late clients left, compared with the time that they had announced */
	struct kvb_samples left_late_s;
	uint64_t refused_mute;          /* number of those that had no Retry-After */
	uint64_t ok, failed, good;
	/* number of good ones if times count from when a request was sent the last time */
	uint64_t last_good;
	uint64_t prompt_tokens, completion_tokens; /* tokens of requests that succeeded */
	uint64_t cached_tokens, cached_of_prompt, cached_reported;
	struct {
		char kind[64];
		uint64_t count;
	} errors[KVB_ERROR_KINDS];
	size_t error_kinds;
};

/* Returns the time per output token after the first, in real ns; 0 for answers of one token. */
double kvb_record_tpot_ns(const struct kvb_record *record);
/* Returns whether the request meets the service level, at the given speed. A failed one never
 * does. */
bool kvb_record_good(const struct kvb_record *record, const struct kvb_slo *slo, double speed);

void kvb_tally_add(struct kvb_tally *tally, const struct kvb_record *record);
/* Adds an answer 429 or 503 that came after so many ns. */
void kvb_tally_add_refusal(struct kvb_tally *tally, int64_t ns, bool retry_after);
/* Adds the time between two content events of one answer. */
void kvb_tally_add_gap(struct kvb_tally *tally, int64_t ns);
void kvb_tally_finish(struct kvb_tally *tally);

/* The figures of a run. All times and rates in seconds of the workers. */
struct kvb_result {
	struct kvb_summary ttft_s, itl_s, tpot_s, e2e_s, late_s, last_ttft_s, refused_s;
	struct kvb_summary left_late_s; /* real */
	uint64_t ok, failed;
	double duration_s;
	double requests_per_s, prompt_tokens_per_s, completion_tokens_per_s;
	double goodput;      /* share of all requests, 0..1 */
	/* the same figures with times counted from when a request was sent the last time */
	double last_goodput;
	/* cached share of the prompt tokens of those answers that report it; 0 if none does */
	double cached_share;
	uint64_t cached_reported;
	uint64_t prompt_tokens, completion_tokens;
};

/* duration_ns: real time from the first request to the last answer. */
struct kvb_result kvb_tally_result(struct kvb_tally *tally, int64_t duration_ns);

#endif
