/*
 * token_job.h - internals of the tokenizer, shared by its two files: tokens.c passes jobs between
 * threads, token_job.c asks workers.
 */
#ifndef KVW_TOKEN_JOB_H
#define KVW_TOKEN_JOB_H

#include <pthread.h>
#include <stdbool.h>
#include <sys/queue.h>

#include "base/account.h"
#include "fleet/curl_loop.h"
#include "fleet/probe_request.h"
#include "feeds/tokens/token_cache.h"
#include "feeds/tokens/tokens.h"

STAILQ_HEAD(kvw_token_jobs, kvw_token_job);
TAILQ_HEAD(kvw_token_running, kvw_token_job);

/* A question about one prompt. */
struct kvw_token_job {
	struct kvw_tokens *tokens;
	STAILQ_ENTRY(kvw_token_job) entry; /* submitted, or answered */

	/* These members are set before the job is submitted. */
	enum kvw_api api;
	bool convert;
	struct kvw_token_key key;
	struct kvw_worker *workers[KVW_TOKENS_WORKERS]; /* held */
	uint32_t worker_count;
	char *authorization; /* the client's field value; owned; NULL: none */
	struct kvw_tokens_box *box; /* a reference */

	/* Used only by the box's thread. done NULL: the job was forgotten. */
	kvw_token_fn *done;
	void *user;

	/* Used only by the tokenizer's thread until the job is answered. */
	TAILQ_ENTRY(kvw_token_job) running;
	struct kvw_probe_request request;
	struct curl_slist *headers;
	uint32_t next_worker; /* index of the next worker to ask */
	int64_t begun_ns;
	char *converted; /* sent instead of the body; owned; NULL: the body is sent as it is */
	size_t converted_len;
	char *answer; /* owned */
	size_t answer_len, answer_room;

	struct kvw_token_result result;
	/* bytes charged to tokens->memory; changed by the thread that has the job */
	uint64_t charged;
	size_t body_len;
	char body[];
};

struct kvw_tokens {
	const struct kvw_config *config;
	struct kvw_fleet *fleet;
	struct kvw_token_cache *cache;
	struct kvw_account *memory; /* account of clients' memory */
	_Atomic int64_t ask_limit_ms;   /* time limit of one job, for all its workers together */
	_Atomic int64_t inflight_limit; /* kvaware.tokens.inflight */
	/* seed of the cache's keys, so that clients cannot choose colliding bodies */
	uint64_t seed;
	/* [KVW_MAX_WORKERS] until when each worker is not asked */
	_Atomic int64_t *refused_until_ns;

	pthread_mutex_t lock; /* guards the next two members */
	struct kvw_token_jobs submitted;
	bool stopping;

	/* Relaxed counters. */
	_Atomic int64_t inflight; /* jobs that exist */
	_Atomic uint64_t turn, asked, cached, answered, failed, asking_ns;

	/* The following members are used only by the tokenizer's thread. */
	struct event_base *base;
	struct event *wake;
	struct kvw_curl_loop transfers;
	struct kvw_token_running running;
	int wake_fd;
	pthread_t thread;
	bool started;
};

/* Puts a job with its result into its box, or frees the job if the box was closed. */
void kvw_token_job_answer(struct kvw_token_job *job);
/* Records that the worker has no /tokenize. */
void kvw_tokens_note_refusal(struct kvw_tokens *tokens, uint32_t worker);

/* --- token_job.c --- */
void kvw_token_job_begin(struct kvw_token_job *job);
/* Callback of the curl loop; user is the job. */
void kvw_token_job_finish(void *user, CURLcode code);
/* Answers all jobs that were submitted or are running. The thread must have ended. */
void kvw_token_jobs_abort(struct kvw_tokens *tokens);

#endif
