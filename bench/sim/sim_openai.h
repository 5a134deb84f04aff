/*
 * sim_openai.h - processes a generating request from its JSON to its last event, for all APIs.
 *
 * Code that all APIs need is here: limits, sequences, counting, the end. Each API reads its request
 * and writes its answer by a kvb_api (sim_api_*.c). Key names, their order and types are those of
 * recorded answers of vLLM 0.32.
 */
#ifndef KVB_SIM_OPENAI_H
#define KVB_SIM_OPENAI_H

#include <event2/event.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/queue.h>

#include "bench/sim/sim_engine.h"
#include "bench/sim/sim_error.h"
#include "bench/sim/sim_http.h"
#include "bench/sim/sim_token.h"

struct kvb_worker;
struct kvb_exchange;
struct kvb_nixl_pull; /* sim_nixl.c */
struct kvb_sidecar;   /* sim_sidecar.c */

/* One of the answers to a request, computed by one sequence. */
struct kvb_choice {
	struct kvb_exchange *exchange;
	struct kvb_seq *seq; /* owned */
	uint32_t index;
	bool done;
	int64_t first_ns; /* simulated time of its first token */
	int64_t last_ns;  /* simulated time of its latest token; 0: there is none yet */
};

/* A request that generates. Owned by its worker; ends with its answer or its connection. */
struct kvb_exchange {
	TAILQ_ENTRY(kvb_exchange) entry;
	TAILQ_ENTRY(kvb_exchange) coming; /* entry of the worker's list while is_coming */
	bool has_due;                     /* it came with x-sim-due, before its time */
	bool is_coming; /* it is in the worker's list, and not in the engine yet */
	int64_t arrival_ns;               /* simulated */
	struct kvb_worker *worker;
	struct kvb_conn *conn;
	const struct kvb_api *api;
	json_t *body; /* owned; the request */

	char id[96];     /* the answer's id without the API's prefix; needs no escapes in JSON */
	char *model;     /* owned; the model's name as answers repeat it */
	int64_t created; /* seconds since 1970 */
	bool stream, include_usage, continuous_usage, return_ids, echo, begun, lora;
	bool exact; /* exact: the request uses no fragments */
	/* borrowed from the body: the answer is a call of this tool; NULL: it is text */
	const char *tool;
	uint32_t max_new;
	bool natural_end; /* the request has no limit: the answer ends by itself */
	uint32_t n;       /* answers per prompt */
	uint64_t salt;

	struct kvb_tokens *prompts; /* owned array */
	uint32_t prompt_count;
	struct kvb_choice *choices; /* owned; prompt_count * n */
	uint32_t choice_count, done_count;
	uint32_t events;   /* tokens sent in a stream */
	uint32_t sequence; /* number of the next event, for APIs that number them */
	struct kvb_nixl_pull *pull; /* under way; NULL: none */
	struct kvb_sidecar *sidecar; /* likewise */
	struct event *silence; /* owned; NULL: no comments */
	struct kvb_buf out;
};

/* Data about a token for the function that writes its event. */
struct kvb_token_event {
	const struct kvb_choice *choice;
	uint32_t token;
	bool first, last; /* number of the token within its choice */
	bool opens;       /* it is the first of the whole answer */
};

/* An API; each has a file of its own. */
struct kvb_api {
	bool anthropic_errors;

	/* Reads the members that only this API has: prompts, max_new, n. Returns false after
	 * filling *error. */
	bool (*read)(struct kvb_exchange *x, struct kvb_error *error);
	/* Writes the whole answer into x->out. */
	void (*plain)(struct kvb_exchange *x);
	/* These write events of a stream, sent by kvb_exchange_event. accepted may be NULL. */
	void (*accepted)(struct kvb_exchange *x); /* sent before anything is computed */
	void (*token)(struct kvb_exchange *x, const struct kvb_token_event *event);
	void (*end)(struct kvb_exchange *x);
	/* The engine has failed in the middle of the stream. */
	void (*failed)(struct kvb_exchange *x, bool opened);
};

extern const struct kvb_api kvb_api_completions, kvb_api_chat, kvb_api_messages, kvb_api_responses;

/* Answers a request by that API. */
void kvb_openai_request(struct kvb_worker *worker, struct kvb_conn *conn,
	const struct kvb_request *request, const struct kvb_api *api);
/* Parses the body as a JSON object, which the caller owns; NULL after filling *error. */
json_t *kvb_openai_parse(const struct kvb_request *request, struct kvb_error *error);
/* Checks the field `model`; false with *error filled. *name is what answers repeat. */
bool kvb_openai_model(const struct kvb_worker *worker, const json_t *body, const char **name,
	bool *lora, struct kvb_error *error);

/* kvb_token_fn of the engine; user is the worker. */
void kvb_openai_token(void *user, struct kvb_seq *seq, uint32_t token, bool last);
/* Puts the exchange's sequences into the engine, as if they came at x->arrival_ns. */
void kvb_exchange_submit(struct kvb_exchange *x);
/* Ends the exchange as an engine would that fails. */
void kvb_exchange_give_up(struct kvb_exchange *x);
/* Called when the exchange's connection has ended: its sequences leave the engine at once. */
void kvb_openai_gone(struct kvb_exchange *x);

/* POST /v1/messages/count_tokens. */
void kvb_count_tokens(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request);

/* Called by the APIs: sends x->out as one chunk, and empties it. */
void kvb_exchange_event(struct kvb_exchange *x, bool content);
bool kvb_read_limit(struct kvb_exchange *x, const char *key, struct kvb_error *error);
struct kvb_tokens *kvb_exchange_add_prompts(struct kvb_exchange *x, uint32_t count);
void kvb_choice_text(const struct kvb_choice *choice, struct kvb_buf *out); /* not escaped */
uint32_t kvb_exchange_prompt_tokens(const struct kvb_exchange *x);
uint32_t kvb_exchange_cached_tokens(const struct kvb_exchange *x);
uint32_t kvb_exchange_created_tokens(const struct kvb_exchange *x); /* whole blocks, newly cached */
uint32_t kvb_exchange_completion_tokens(const struct kvb_exchange *x);
void kvb_buf_json_tokens(struct kvb_buf *out, const uint32_t *ids, size_t count); /* as a string */
void kvb_buf_error_event(struct kvb_buf *out);

#endif
