/*
 * options.h - the options of kvbench.
 */
#ifndef KVB_OPTIONS_H
#define KVB_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kvway/err.h"
#include "bench/load/option_table.h"

enum kvb_command { KVB_HELP, KVB_CHAT, KVB_TRACE, KVB_COMPARE };
enum kvb_api { KVB_API_CHAT, KVB_API_COMPLETIONS };

/* Strings are borrowed from argv. Times are in simulated seconds if speed is not 1. */
struct kvb_options {
	enum kvb_command command;
	struct kvb_texts urls; /* at least one */
	const char *model;     /* NULL: the first model in /v1/models */
	const char *label;
	const char *json;    /* file or "-"; NULL: none */
	int api;             /* enum kvb_api */
	double speed; /* the workers' simulated time runs so many times as fast as the clock */
	double timeout_s;    /* longest time without a byte, in real seconds */
	int64_t concurrency; /* most requests under way; 0: no limit */
	int64_t retries; /* how often a request is sent again after 429 or 503 with Retry-After */
	/* the pause before that is longer than Retry-After by up to this share */
	double retry_spread;
	int64_t requests;    /* most requests; 0: all of the workload */
	uint64_t seed;
	bool ignore_eos;
	const char *session_header; /* "" : none */

	double slo_ttft_s, slo_ttft_tokens_per_s, slo_tpot_s;

	double bytes_per_token;

	/* chat */
	int64_t users, sessions, rounds;
	int64_t system_prompts, system_tokens, question_tokens, answer_tokens;
	double qps;  /* questions per simulated second; 0: each user asks again when answered */
	int poisson; /* 0: fixed gaps */

	/* trace */
	const char *trace;
	double rate_scale;
	double lead_ms;  /* real time; requests are sent so much earlier if speed is not 1 */
	double pause_ms; /* real time; least pause between two requests */
	double leave_share;   /* share of the clients that wait for leave_after_s only */
	double leave_after_s; /* simulated */
	int64_t block_tokens;

	/* compare: the files after the options */
	char **files;
	size_t file_count;
};

/* KVW_EINVAL: error has what was wrong and what was expected. */
enum kvw_err kvb_options_parse(
	int argc, char **argv, struct kvb_options *out, FILE *error) KVW_MUST_CHECK;
void kvb_options_help(FILE *out);
/* Sets the defaults; there is no default URL. */
void kvb_options_init(struct kvb_options *out);

#endif
