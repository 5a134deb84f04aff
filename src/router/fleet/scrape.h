/*
 * scrape.h - reads a worker's own pages: /metrics (Prometheus text) and /v1/models (JSON).
 *
 * Both come from another program and are untrusted: every number has a range, every list a limit,
 * and malformed text is skipped (metrics) or refused (models).
 */
#ifndef KVW_SCRAPE_H
#define KVW_SCRAPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"
#include "kvway/slice.h"
#include "fleet/model_card.h"
#include "fleet/ranks.h"

/* Limits: engines (data-parallel ranks) of a page, models of one worker, length of a model's
 * name. */
#define KVW_SCRAPE_MAX_ENGINES    256
#define KVW_SCRAPE_MAX_MODELS     4096
#define KVW_SCRAPE_MAX_MODEL_NAME 512
/* longest root, parent or owned_by; a longer one is ignored */
#define KVW_SCRAPE_MAX_CARD_TEXT  1024

/* Numbers that the router reads from /metrics. */
struct kvw_scrape {
	bool started_known;
	double started_s;         /* process_start_time_seconds */
	bool capacity_known;      /* every engine has reported its cache */
	uint64_t capacity_tokens; /* usable tokens of all engines together */
	uint32_t block_size;      /* tokens; the largest where engines differ */
	double kv_usage;    /* vllm:kv_cache_usage_perc, 0 to 1, mean of the engines; -1: unknown */
	bool progress_known;
	/* Iterations, prompt tokens and generated tokens since the server's start, added up over
	 * all engines. */
	double progress;
	bool running;       /* an engine reports running requests */
	/* Sums over all engines; -1: unknown. */
	double requests_waiting; /* vllm:num_requests_waiting */
	double requests_running; /* value of vllm:num_requests_running */
	/* vllm:request_prompt_tokens: number and tokens of prompts whose requests have ended. */
	double prompts, prompt_tokens;
	double first_tokens; /* vllm:time_to_first_token_seconds: number of first tokens */
	/* vllm:spec_decode_num_draft_tokens_total, _accepted_tokens_total. */
	double draft_tokens, draft_accepted;
	/* Tokens, vllm:prefix_cache_queries_total and _hits_total. */
	double cache_queries, cache_hits;
	double external_hits; /* tokens, vllm:external_prefix_cache_hits_total; -1: unknown */
	bool blends; /* kvtier:fragments_enabled: the engine reuses texts that are no prefix */
	bool asleep;        /* vllm:engine_sleep_state: at least one engine is not awake */
};

/* Reads the text, which may have any bytes; lines that are not samples are skipped. */
void kvw_scrape_metrics(const char *text, size_t len, struct kvw_scrape *out);

/* The samples of one data-parallel rank of the server. */
struct kvw_scraped_rank {
	uint32_t global; /* its label `engine` */
	struct kvw_scrape said;
};

/* A page of a server, as a whole and by its ranks. */
struct kvw_scrape_page {
	struct kvw_scrape all;
	/* [rank_count], ascending: a rank's place here is its index in the server. */
	struct kvw_scraped_rank ranks[KVW_RANKS_MOST];
	size_t rank_count;
	bool more_ranks; /* the page has more than KVW_RANKS_MOST ranks, which are left out */
};

/* Like kvw_scrape_metrics, and also by ranks. */
void kvw_scrape_ranks(const char *text, size_t len, struct kvw_scrape_page *out);

/* Names of models, ascending, each once. */
struct kvw_model_names {
	char **items; /* owned */
	/* [count] owned. A card with a parent belongs to a LoRA adapter. */
	struct kvw_model_card *cards;
	size_t count;
};

/* Reads a list of models. KVW_EPROTO: not the list that OpenAI's API defines. KVW_ELIMIT,
 * KVW_ENOMEM. */
enum kvw_err kvw_scrape_models(
	const char *text, size_t len, struct kvw_model_names *out) KVW_MUST_CHECK;
void kvw_model_names_finish(struct kvw_model_names *names);

#endif
