/*
 * exchange.h - one request and its answer: what the client sees.
 *
 * Two states that move independently: an early answer during an upload and a half-sent request
 * after the answer are both ordinary. kvw_exchange_request_state and kvw_exchange_response_state
 * alone write them and check the tables in exchange.c. A step that no table allows is a bug of
 * ours: it is logged and counted, and that exchange is cut. All others go on.
 *
 *   request side    READ_HEAD -> READ_BODY -> ROUTING -> CONNECTING -> SENDING -> SENT
 *                   |                         |  ^ (waits in WAITING, for what x->wait says)
 *                   +-> WAITING (for the text of /metrics)
 *   response side   NONE -> WAITING -> HELD -> STREAMING -> DONE -> ENDED
 *                                              |  ^ (waits in PAUSED)
 *
 * kvw_exchange_advance (advance.h) moves an exchange on; the states say what it waits for.
 *
 * A whole request (`whole`) is read to its end before a worker is picked and kept until the first
 * token, so that it can go to another worker. Any other is forwarded while it arrives, a prompt,
 * and JSON of a path that is not known, as soon as its model's name was found, or not within
 * routing.scan_limit.
 *
 * Threads: an exchange and its attempt belong to one loop; all functions on them run there.
 */
#ifndef KVW_EXCHANGE_H
#define KVW_EXCHANGE_H

#include "proxy/attempt.h"
#include "proxy/client.h"
#include "proxy/feature.h"
#include "proxy/upload.h"
#include "openai/usage.h"
#include "proxy/wait.h"
#include "trace/trace.h"

enum kvw_request_state {
	KVW_REQUEST_READ_HEAD,
	KVW_REQUEST_READ_BODY,  /* whole, or until its model is found */
	KVW_REQUEST_ROUTING,    /* a worker is to be found: waits for nothing */
	KVW_REQUEST_WAITING,    /* for what x->wait says (wait.h) */
	KVW_REQUEST_CONNECTING,
	KVW_REQUEST_SENDING,    /* the answer may begin, too */
	KVW_REQUEST_SENT,
	KVW_REQUEST_STATES
};

/* In the order of an answer's way: comparisons by < are meant. */
enum kvw_response_state {
	KVW_RESPONSE_NONE,
	KVW_RESPONSE_WAITING,   /* a worker has the request or is getting it */
	KVW_RESPONSE_HELD,      /* head received, kept back until the first token or body byte */
	KVW_RESPONSE_STREAMING, /* the client has been sent a byte of it */
	KVW_RESPONSE_PAUSED,    /* the same, and not reading from the worker: the client is slow */
	KVW_RESPONSE_DONE,      /* whole; some of it may wait to be sent */
	KVW_RESPONSE_ENDED,     /* of the exchange: nothing is held any more */
	KVW_RESPONSE_STATES
};

/* How an answer's body is passed on. */
enum kvw_pass {
	KVW_PASS_RAW,     /* framing bytes and all */
	KVW_PASS_PAYLOAD, /* payload alone: the client's framing is by length or close */
	KVW_PASS_REFRAME, /* payload in chunks of our own: the worker ends its answer by closing */
	/* it is no stream, and the client was sent the head of one: an event of all of it */
	KVW_PASS_EVENT,
};

struct kvw_explanation; /* admin/explanation.h */

/* The model that it names. */
struct kvw_named {
	/* owned; what the query or a body that was not scanned to its end says; len 0: nothing */
	struct kvw_slice text;
	bool absent;             /* the body was looked at, and names none */
	/* by such a one, held; NULL: several could be. Stays as it was first */
	struct kvw_model *meant;
};

/* How long the prompt's text is, by which bytes per token are learned. */
struct kvw_measure {
	uint64_t units;             /* sum over its chains; 0: nothing to learn */
	struct kvw_ratio_keys keys; /* how it begins */
};

struct kvw_exchange {
	struct kvw_loop *loop;
	struct kvw_client *client; /* outlives the exchange */
	/* the settings that it began with; config and strategy are of it */
	struct kvw_in_force *in_force;
	const struct kvw_config *config;
	struct kvw_strategy *strategy;
	TAILQ_ENTRY(kvw_exchange) entry; /* of its wait, ended or free */
	enum kvw_request_state request_state;
	enum kvw_response_state response_state;
	struct kvw_trace_way *trace; /* what happens is noted there; NULL: it is not */
	struct kvw_explanation *dry; /* it is only explained (dry.h); NULL: it is served */
	bool faulty; /* took a step that its table forbids: to be cut */
	struct kvw_waiting wait;

	/* --- of single features (feature.h) --- */
	struct kvw_caller caller;
	struct kvw_web_page page;
	struct kvw_sagemaker sagemaker;
	struct kvw_rewriting rewrite;
	struct kvw_silence silence;
	struct kvw_made made;
	struct kvw_waking waking;
	struct kvw_division division;
	struct kvw_rating rating;
	struct kvw_exact_tokens exact;
	struct kvw_admitting admission;
	struct kvw_asking asked;
	struct kvw_parted pd;

	/* --- request --- */
	struct kvw_path_info path;
	struct kvw_upload upload;
	struct kvw_slice method, target, request_id; /* in the raw head or id_text */
	char id_text[40];
	uint8_t client_minor;     /* HTTP/1.minor */
	/* it is read to its end before a worker is picked, and kept until the first token */
	bool whole;
	uint64_t scan_memory;     /* of `scan` charged to limits.body_memory */
	struct kvw_slice head_session; /* session key from a header or cookie, in the raw head */
	/* the worker that the request names, in the raw head; empty: none, or it does not count */
	struct kvw_slice pin;
	struct kvw_scan *scan;    /* until a worker is picked; NULL: content not looked at */
	bool scanned;             /* the body was what its path promises */
	bool streams;             /* and asks for a stream */
	bool greedy; /* it asks for the likeliest tokens (temperature 0), of chat or completions */
	struct kvw_route_request route; /* borrows from scan and named */
	struct kvw_named named;
	struct kvw_measure measure;
	struct kvw_timer timer;   /* connect, attempt, first token, stream idle, park, tokens */
	struct kvw_timer deadline; /* timeouts.request */

	/* --- what a worker is asked --- */
	/* the present one; between two, what the log needs of the last */
	struct kvw_attempt attempt;
	struct kvw_model *model;  /* held */
	bool show_decision;       /* the answer's head names the decision (http.decision_headers) */

	/* --- response --- */
	/* compares it with the answers to copies; NULL: nothing does */
	struct kvw_fidelity *fidelity;
	int status;
	enum kvw_pass pass;
	bool event_stream;
	bool close_client;             /* no further request on this connection */
	enum kvw_end end;              /* how it ends, once the response is DONE */
	const char *timeout;           /* the setting whose time was over, if that ends it */
	bool emptied;                  /* the worker's cache was said to be lost by this request */
	bool said_all;                 /* the stream's last event was passed on */

	/* --- times, monotonic ns --- */
	int64_t start_ns, wall_ns, complete_ns, last_data_ns;
	int64_t first_token_ns; /* 0: none yet */
	/* spent in kvway: until it was sent, and on the piece with which its answer began */
	int64_t added_ns;
	uint32_t stream_chunks;

	struct kvw_tried tried;
	/* --- from tried.ids on not cleared for a new request: lengths and counts say what is in
	 * them --- */
	struct kvw_usage usage;
};

/* RFC 9110 section 9.2.2, but for TRACE, which kvway answers with 405. */
bool kvw_exchange_is_idempotent(const struct kvw_exchange *x);

static inline bool kvw_exchange_is_head(const struct kvw_exchange *x)
{
	return kvw_slice_equal(x->method, KVW_SLICE("HEAD"));
}

/* May errors for clients name workers? */
static inline bool kvw_exchange_names_workers(const struct kvw_exchange *x)
{
	return x->dry != NULL ||
	       (x->config->decision_headers != KVW_DECISION_HEADERS_OFF && !x->page.preflight &&
		       (x->caller.key == NULL || x->caller.key->trusted));
}

static inline bool kvw_exchange_ended(const struct kvw_exchange *x)
{
	return x->response_state == KVW_RESPONSE_ENDED;
}

/* Does an engine compute for it? Its API server alone answers the others. */
static inline bool kvw_exchange_computes(const struct kvw_exchange *x)
{
	return x->path.prompt && x->path.api != KVW_API_TOKENIZE &&
	       x->path.api != KVW_API_COUNT_TOKENS;
}

/* Is the answer a stream in which only a token says that its engine works? */
static inline bool kvw_exchange_streams_tokens(const struct kvw_exchange *x)
{
	return x->event_stream && x->status == 200 && kvw_exchange_computes(x);
}

/* Names what a worker keeps and this goes on with: a response, or a session of SageMaker's; len 0:
 * nothing. */
static inline struct kvw_slice kvw_exchange_kept(const struct kvw_exchange *x)
{
	if (x->path.made_id.len > 0)
		return x->path.made_id;
	return x->route.previous_id.len > 0 ? x->route.previous_id : x->sagemaker.session;
}

/* The client has got a part of the answer: no other can take its place. */
static inline bool kvw_exchange_answering(const struct kvw_exchange *x)
{
	return x->response_state >= KVW_RESPONSE_STREAMING;
}

/* Begins with what client->in holds. on_timer: of x->timer. NULL: out of memory. */
struct kvw_exchange *kvw_exchange_create(struct kvw_client *client, kvw_timer_fn on_timer);

/* Write a state. A step that is not allowed leaves the state alone and makes the exchange
 * faulty. */
void kvw_exchange_request_state(struct kvw_exchange *x, enum kvw_request_state state);
void kvw_exchange_response_state(struct kvw_exchange *x, enum kvw_response_state state);

/* Ends the exchange: releases all it holds, reports to strategy, metrics and log, frees the client
 * for the next request. Exactly once. */
void kvw_exchange_end(struct kvw_exchange *x, enum kvw_end end);

/* The answer broke after its beginning was sent: ends the exchange and cuts the client's
 * connection, so that the client does not take the answer for whole. */
void kvw_exchange_cut(struct kvw_exchange *x, enum kvw_end end);

/* If the request empties a cache: says so, once. Before the client can hear of it, and at the
 * latest at the end. */
void kvw_exchange_note_emptied(struct kvw_exchange *x);

/* The request's bytes are not needed again. */
void kvw_exchange_drop_request(struct kvw_exchange *x);

#endif
