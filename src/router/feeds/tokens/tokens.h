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

#define KVW_TOKENS_WORKERS    2 /* limit of workers that a job asks, one after another */
/* largest body of a job; longer prompts are routed by text */
#define KVW_TOKENS_BODY_MAX   ((size_t)16 << 20)

struct kvw_account;
struct kvw_tokens;
struct kvw_tokens_box;
struct kvw_token_job;

/* Result of a job. */
struct kvw_token_result {
	enum kvw_inexact inexact;    /* why there are no tokens; KVW_INEXACT_NOT: `list` is set */
	struct kvw_token_list *list; /* a reference that belongs to the receiver */
};

/* Called on the box's thread, from kvw_tokens_box_read. Takes result->list. */
typedef void kvw_token_fn(void *user, const struct kvw_token_result *result);

/* --- life --- */

/* Starts the thread. config, fleet and memory are borrowed; `memory` is charged with the jobs'
 * bytes. */
enum kvw_err kvw_tokens_start(const struct kvw_config *config, struct kvw_fleet *fleet,
	struct kvw_account *memory, struct kvw_tokens **out) KVW_MUST_CHECK;
/* Applies the keys that a reload may change. Any thread. */
void kvw_tokens_reconfigure(struct kvw_tokens *tokens, const struct kvw_config *config);
/* Ends the thread and its transfers. All boxes must have been closed. NULL is allowed. */
void kvw_tokens_stop(struct kvw_tokens *tokens);

/* --- boxes: one per thread that asks --- */

enum kvw_err kvw_tokens_box_create(struct kvw_tokens_box **out) KVW_MUST_CHECK;
/* Returns a descriptor that is readable when an answer waits. The box owns it. */
int kvw_tokens_box_fd(const struct kvw_tokens_box *box);
/* Calls `done` of each answered job. */
void kvw_tokens_box_read(struct kvw_tokens_box *box);
/* Closes a box; later answers are dropped. NULL is allowed. */
void kvw_tokens_box_close(struct kvw_tokens_box *box);

/* --- jobs; called by the box's thread --- */

/* Makes a job with room for a body. NULL: the body is too long, kvaware.tokens.inflight or the
 * limit of memory is reached, or memory is out. */
struct kvw_token_job *kvw_token_job_create(struct kvw_tokens *tokens, size_t body_len);
char *kvw_token_job_body(struct kvw_token_job *job); /* [body_len], to be filled by the caller */
void kvw_token_job_destroy(struct kvw_token_job *job); /* only for a job that was not submitted */

/* Which workers a job asks, and how. Borrowed during the call. */
struct kvw_token_ask {
	enum kvw_api api;
	bool convert;                       /* KVW_FORM_CONVERT */
	bool cached_only;                   /* ask no worker */
	/* The client's own field value, sent to workers for which no key is configured. */
	struct kvw_slice authorization;
	uint32_t workers[KVW_TOKENS_WORKERS]; /* in this order */
	uint32_t worker_count;
	struct kvw_tokens_box *box;
	kvw_token_fn *done;
	void *user;
};

/* Submits a job, and takes it. True: *result is set (from the cache, or because no question is
 * possible) and the job is freed. False: done will be called once, unless the job is forgotten
 * before. */
bool kvw_token_job_submit(struct kvw_token_job *job, const struct kvw_token_ask *ask,
	struct kvw_token_result *result) KVW_MUST_CHECK;
/* Forgets a submitted job whose done was not called: done will not be called. The answer still goes
 * to the cache. */
void kvw_token_job_forget(struct kvw_token_job *job);

/* --- any thread --- */

/* Facts that a caller must know before it asks for a prompt's tokens. */
struct kvw_tokens_choice {
	uint32_t usable; /* candidates */
	bool view;       /* one of the workers publishes its cache */
};
struct kvw_tokens_choice kvw_tokens_look(
	const struct kvw_exact *exact, const struct kvw_candidate *items, size_t count);

/* Returns whether this worker recently showed that it has no /tokenize. */
bool kvw_tokens_refused_by(const struct kvw_tokens *tokens, uint32_t worker, int64_t now_ns);
/* Drops the record that a worker has no /tokenize, because another worker gets its slot. */
void kvw_tokens_forget(struct kvw_tokens *tokens, uint32_t worker);
/* Chooses workers to ask among the candidates: usable ones that have /tokenize, first those with
 * the fewest requests in flight, in turn among equals. Returns their number. */
uint32_t kvw_tokens_choose(struct kvw_tokens *tokens, const struct kvw_candidate *items,
	size_t count, int64_t now_ns, uint32_t workers[KVW_TOKENS_WORKERS]);

struct kvw_tokens_stats {
	uint64_t asked;    /* prompts about which a worker was asked, since the start */
	uint64_t cached;   /* prompts found in the cache, since the start */
	uint64_t answered; /* of those asked */
	uint64_t failed;   /* of those asked */
	uint64_t asking_ns; /* total time of the answered questions */
	uint64_t inflight;
	uint64_t cache_lists, cache_bytes, cache_bytes_limit;
};
void kvw_tokens_stats(struct kvw_tokens *tokens, struct kvw_tokens_stats *out);

#endif
