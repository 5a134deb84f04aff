/*
 * outcome.h - what a run of kvbench has seen, and the figures made of it.
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

/* One request, finished. Times from the moment it was sent. */
struct kvb_record {
	bool ok;
	const char *error;         /* if not ok: its kind, one short line; borrowed */
	int64_t late_ns;           /* from when it was due to when it was sent */
	int64_t ttft_ns;           /* to the first content */
	int64_t tries_ns;          /* to when it was sent the last time; 0: it was sent once */
	int64_t e2e_ns;            /* to the answer's end */
	int64_t prompt_tokens;     /* from usage, else as planned */
	int64_t completion_tokens; /* from usage, else content events */
	bool cached_known;
	int64_t cached_tokens;
	int64_t sent_ns; /* on the clock: handed to the client, which may have to connect first */
	int64_t written_ns; /* its first byte went out; 0: never */
	int64_t first_ns;   /* the first content; 0: none */
	int64_t end_ns;
};

/* The service level that goodput counts. */
struct kvb_slo {
	double ttft_s;
	double ttft_tokens_per_s; /* a prompt of n tokens may take n / this longer */
	double tpot_s;
};

struct kvb_tally {
	double speed;
	struct kvb_slo slo;
	struct kvb_samples ttft_s, itl_s, tpot_s, e2e_s, late_s; /* real seconds */
	struct kvb_samples last_ttft_s; /* counted from when it was sent the last time */
	struct kvb_samples refused_s;   /* until an answer 429 or 503 had come, every one of them */
	struct kvb_samples left_late_s; /* how late clients left, by what they had said */
	uint64_t refused_mute;          /* of these, which had no Retry-After */
	uint64_t ok, failed, good;
	uint64_t last_good; /* good if counted from when it was sent the last time */
	uint64_t prompt_tokens, completion_tokens; /* of requests that succeeded */
	uint64_t cached_tokens, cached_of_prompt, cached_reported;
	struct {
		char kind[64];
		uint64_t count;
	} errors[KVB_ERROR_KINDS];
	size_t error_kinds;
};

/* Time per output token after the first, in real ns; 0 for answers of one token. */
double kvb_record_tpot_ns(const struct kvb_record *record);
/* Does the request meet the service level, at the given speed? A failed one never does. */
bool kvb_record_good(const struct kvb_record *record, const struct kvb_slo *slo, double speed);

void kvb_tally_add(struct kvb_tally *tally, const struct kvb_record *record);
/* It was answered 429 or 503 after so long. */
void kvb_tally_add_refusal(struct kvb_tally *tally, int64_t ns, bool retry_after);
/* Gap between two content events of one answer. */
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
	double last_goodput; /* the same, each counted from when it was sent the last time */
	double cached_share; /* of the prompt tokens of answers that report it; 0 if none does */
	uint64_t cached_reported;
	uint64_t prompt_tokens, completion_tokens;
};

/* duration_ns: real time from the first request sent to the last answer. */
struct kvb_result kvb_tally_result(struct kvb_tally *tally, int64_t duration_ns);

#endif
