/*
 * tokens.h - gets a prompt's token ids from a worker's /tokenize.
 *
 * One thread asks for all event loops. A loop fills a job with the request's body and submits it;
 * the answer comes back through the loop's own box, whose descriptor the loop watches. No call
 * blocks a loop: a look-up in the cache takes a short lock, a submission another.
 *
 * 	loop        job -> submit --> cache? -> known at once
 * 	                                 |
 * 	tokenizer                        +-> body as it is, or converted -> POST /tokenize -> cache
 * 	                                                                           |
 * 	loop        box readable <- kvw_tokens_box_read <- job <-------------------+
 */
#ifndef KVW_TOKENS_H
#define KVW_TOKENS_H

#include "fleet/fleet.h"
#include "kvway/route_request.h"
#include "feeds/tokens/token_list.h"

#define KVW_TOKENS_WORKERS    2                  /* most workers that a job asks, in turn */
#define KVW_TOKENS_BODY_MAX   ((size_t)16 << 20) /* of one job; longer prompts are routed by text */

struct kvw_account;
struct kvw_tokens;
struct kvw_tokens_box;
struct kvw_token_job;

/* Result of a job. */
struct kvw_token_result {
	enum kvw_inexact inexact;    /* KVW_INEXACT_NOT: `list` is set */
	struct kvw_token_list *list; /* a reference of the receiver's */
};

/* Called on the box's thread, from kvw_tokens_box_read. Takes result->list. */
typedef void kvw_token_fn(void *user, const struct kvw_token_result *result);

/* --- life --- */

/* config, fleet, memory: borrowed. `memory` limits the jobs' bytes. */
enum kvw_err kvw_tokens_start(const struct kvw_config *config, struct kvw_fleet *fleet,
	struct kvw_account *memory, struct kvw_tokens **out) KVW_MUST_CHECK;
/* Applies the keys that a reload may change. Any thread. */
void kvw_tokens_reconfigure(struct kvw_tokens *tokens, const struct kvw_config *config);
/* Ends the thread and its transfers. All boxes must have been closed. NULL is allowed. */
void kvw_tokens_stop(struct kvw_tokens *tokens);

/* --- boxes: one per thread that asks --- */

enum kvw_err kvw_tokens_box_create(struct kvw_tokens_box **out) KVW_MUST_CHECK;
/* A descriptor, readable when an answer waits. The box owns it. */
int kvw_tokens_box_fd(const struct kvw_tokens_box *box);
/* Calls done of every answered job. */
void kvw_tokens_box_read(struct kvw_tokens_box *box);
/* Closes a box; later answers are dropped. NULL is allowed. */
void kvw_tokens_box_close(struct kvw_tokens_box *box);

/* --- jobs: the box's thread --- */

/* Makes a job with room for a body. NULL: a limit above, kvaware.tokens.inflight or the limit of
 * memory is reached, or out of memory. */
struct kvw_token_job *kvw_token_job_create(struct kvw_tokens *tokens, size_t body_len);
char *kvw_token_job_body(struct kvw_token_job *job); /* [body_len], for the caller to fill */
void kvw_token_job_destroy(struct kvw_token_job *job); /* a job that was not submitted */

/* The workers to ask, and the way. Borrowed during the call. */
struct kvw_token_ask {
	enum kvw_api api;
	bool convert;                       /* KVW_FORM_CONVERT */
	bool cached_only;                   /* ask no worker */
	/* The client's field value; used for workers without a key. */
	struct kvw_slice authorization;
	uint32_t workers[KVW_TOKENS_WORKERS]; /* in this order */
	uint32_t worker_count;
	struct kvw_tokens_box *box;
	kvw_token_fn *done;
	void *user;
};

/* Takes the job. True: *result is set (from the cache, or no question is possible) and the job is
 * freed. False: done will be called once, unless the job is forgotten before. */
bool kvw_token_job_submit(struct kvw_token_job *job, const struct kvw_token_ask *ask,
	struct kvw_token_result *result) KVW_MUST_CHECK;
/* Forgets a job: done will not be called. The answer still goes to the cache. Only while submitted
 * and not done. */
void kvw_token_job_forget(struct kvw_token_job *job);

/* --- any thread --- */

/* Facts to know before a prompt's tokens are asked for. */
struct kvw_tokens_choice {
	uint32_t usable; /* candidates */
	bool view;       /* one of them publishes its cache */
};
struct kvw_tokens_choice kvw_tokens_look(
	const struct kvw_exact *exact, const struct kvw_candidate *items, size_t count);

/* Whether this worker recently showed that it has no /tokenize. */
bool kvw_tokens_refused_by(const struct kvw_tokens *tokens, uint32_t worker, int64_t now_ns);
/* Drops a worker's refusal: another worker gets the slot. */
void kvw_tokens_forget(struct kvw_tokens *tokens, uint32_t worker);
/* Chooses workers to ask among the candidates: usable, not refusing, fewest in flight, in turn
 * among equals. Returns their number. */
uint32_t kvw_tokens_choose(struct kvw_tokens *tokens, const struct kvw_candidate *items,
	size_t count, int64_t now_ns, uint32_t workers[KVW_TOKENS_WORKERS]);

struct kvw_tokens_stats {
	uint64_t asked;    /* prompts that a worker was asked about, since start */
	uint64_t cached;   /* prompts found in the cache, since start */
	uint64_t answered; /* of those asked */
	uint64_t failed;   /* of those asked */
	uint64_t asking_ns; /* sum over those answered */
	uint64_t inflight;
	uint64_t cache_lists, cache_bytes, cache_bytes_limit;
};
void kvw_tokens_stats(struct kvw_tokens *tokens, struct kvw_tokens_stats *out);

#endif
