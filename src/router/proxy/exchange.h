/*
 * exchange.h - one request of a client and its answer.
 *
 * Two states that move independently: an early answer during an upload and a half-sent request
 * after the answer are both ordinary. kvw_exchange_request_state and kvw_exchange_response_state
 * alone write them and check the tables in exchange.c. A step that no table allows is a bug of
 * kvway: it is logged and counted, and that exchange is cut. All other exchanges go on.
 *
 *   request side    READ_HEAD -> READ_BODY -> ROUTING -> CONNECTING -> SENDING -> SENT
 *                   |                         |  ^ (waits in WAITING, for what x->wait says)
 *                   +-> WAITING (for the text of /metrics)
 *   response side   NONE -> WAITING -> HELD -> STREAMING -> DONE -> ENDED
 *                                              |  ^ (waits in PAUSED)
 *
 * kvw_exchange_advance (advance.h) moves an exchange on; the states say which event the exchange
 * waits for.
 *
 * A whole request (`whole`) is read to its end before a worker is picked and kept until the first
 * token, so that it can go to another worker. Any other request is forwarded while it arrives; a
 * prompt, or JSON of an unknown path, as soon as the name of its model was found, or was not found
 * within routing.scan_limit.
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
	KVW_REQUEST_READ_BODY,  /* the whole body, or until the model is found */
	KVW_REQUEST_ROUTING,    /* a worker must be chosen; the exchange waits for nothing */
	KVW_REQUEST_WAITING,    /* the exchange waits for the event that x->wait names (wait.h) */
	KVW_REQUEST_CONNECTING,
	KVW_REQUEST_SENDING,    /* the answer may begin, too */
	KVW_REQUEST_SENT,
	KVW_REQUEST_STATES
};

/* States in the order of an answer's way, so that `<` may compare them. */
enum kvw_response_state {
	KVW_RESPONSE_NONE,
	KVW_RESPONSE_WAITING,   /* a worker has the request or is receiving it */
	KVW_RESPONSE_HELD,      /* head received, kept back until the first token or body byte */
	KVW_RESPONSE_STREAMING, /* the client has been sent a byte of the answer */
	KVW_RESPONSE_PAUSED,    /* like STREAMING, but the worker is not read: the client is slow */
	KVW_RESPONSE_DONE,      /* the answer is complete; some of it may wait to be sent */
	KVW_RESPONSE_ENDED,     /* the exchange has ended and holds nothing any more */
	KVW_RESPONSE_STATES
};

/* How an answer's body is passed on. */
enum kvw_pass {
	KVW_PASS_RAW,     /* unchanged, including the framing bytes */
	/* only the payload; the client's answer is framed by a length or a close */
	KVW_PASS_PAYLOAD,
	KVW_PASS_REFRAME, /* payload in kvway's own chunks: the worker ends its answer by a close */
	/* the answer is no stream, but the client was sent the head of one: one event holds the
	 * answer */
	KVW_PASS_EVENT,
};

struct kvw_explanation; /* admin/explanation.h */

/* The model that the request names. */
struct kvw_named {
	/* owned; named by the query, or by a body not scanned to its end; len 0: no name */
	struct kvw_slice text;
	bool absent;             /* the body was scanned, and names no model */
	/* the model of requests that name none, held; NULL: several are possible. Once set it
	 * stays */
	struct kvw_model *meant;
};

/* Length of the prompt's text, from which bytes per token are learned. */
struct kvw_measure {
	uint64_t units;             /* sum over the prompt's chains; 0: nothing can be learned */
	struct kvw_ratio_keys keys; /* hashes of its beginnings */
};

struct kvw_exchange {
	struct kvw_loop *loop;
	struct kvw_client *client; /* outlives the exchange */
	/* settings with which the exchange began; they contain config and strategy */
	struct kvw_in_force *in_force;
	const struct kvw_config *config;
	struct kvw_strategy *strategy;
	/* link in the list of its wait, of ended or of free exchanges */
	TAILQ_ENTRY(kvw_exchange) entry;
	enum kvw_request_state request_state;
	enum kvw_response_state response_state;
	struct kvw_trace_way *trace; /* the trace of this exchange; NULL: not traced */
	struct kvw_explanation *dry; /* the request is only explained (dry.h); NULL: served */
	bool faulty; /* a step was forbidden by its table: the exchange must be cut */
	struct kvw_waiting wait;

	/* --- members of single features (feature.h) --- */
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
	struct kvw_parted *pd; /* owned; NULL: no pair was looked for */

	/* --- request --- */
	struct kvw_path_info path;
	struct kvw_upload upload;
	struct kvw_slice method, target, request_id; /* slices of the raw head, or of id_text */
	char id_text[40];
	uint8_t client_minor;     /* HTTP/1.minor */
	/* the request is read to its end before a worker is picked, and kept until the first
	 * token */
	bool whole;
	uint64_t scan_memory;     /* the scan's memory that is charged to limits.body_memory */
	/* session key from a header or cookie; a slice of the raw head */
	struct kvw_slice head_session;
	/* name of the worker in x-kvway-pin, a slice of the raw head; empty: none, or not
	 * allowed */
	struct kvw_slice pin;
	/* the body's scan until a worker is picked; NULL: the body is not scanned */
	struct kvw_scan *scan;
	bool scanned;             /* the path allows the body's form */
	bool streams;             /* the body asks for a stream */
	/* offset in the body at which a rank may be inserted as the first member (rank.h); 0: at
	 * none */
	uint8_t rank_at;
	/* a chat or completions request of temperature 0, whose answer is always the same */
	bool greedy;
	struct kvw_route_request route; /* borrows from scan and named */
	struct kvw_named named;
	struct kvw_measure measure;
	/* timer of the state: connect, attempt, first token, stream idle, park, tokens */
	struct kvw_timer timer;
	struct kvw_timer deadline; /* timeouts.request */

	/* --- the request to a worker --- */
	/* the present attempt; between two attempts, the last one's data for the log */
	struct kvw_attempt attempt;
	struct kvw_model *model;  /* held */
	bool show_decision;       /* the answer's head shows the decision (http.decision_headers) */

	/* --- response --- */
	/* compares the client's answer with those of copies; NULL: no comparison */
	struct kvw_fidelity *fidelity;
	int status;
	enum kvw_pass pass;
	bool event_stream;
	bool close_client;             /* the connection takes no further request */
	enum kvw_end end;              /* how the exchange ends, once the response is DONE */
	const char *timeout; /* the timeout that ends the exchange; NULL: none */
	bool emptied; /* the sources were informed that this request emptied the worker's cache */
	bool said_all;                 /* the stream's last event was passed on to the client */

	/* --- times, monotonic ns --- */
	int64_t start_ns, wall_ns, complete_ns, last_data_ns;
	int64_t first_token_ns; /* 0: none yet */
	/* time spent in kvway: until the request was sent, and on the piece with which its answer
	 * began */
	int64_t added_ns;
	uint32_t stream_chunks;

	struct kvw_tried tried;
	/* --- members that a new request does not clear, from tried.ids on: lengths and counts
	 * limit their valid part --- */
	struct kvw_usage usage;
};

/* Returns whether the method is idempotent by RFC 9110 section 9.2.2; TRACE is not counted, since
 * kvway answers it with 405. */
bool kvw_exchange_is_idempotent(const struct kvw_exchange *x);

static inline bool kvw_exchange_is_head(const struct kvw_exchange *x)
{
	return kvw_slice_equal(x->method, KVW_SLICE("HEAD"));
}

/* Returns whether errors for clients may name workers. */
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

/* Returns whether an engine computes for the request. The API server alone answers all others. */
static inline bool kvw_exchange_computes(const struct kvw_exchange *x)
{
	return x->path.prompt && x->path.api != KVW_API_TOKENIZE &&
	       x->path.api != KVW_API_COUNT_TOKENS;
}

/* Returns whether the answer is a stream in which only a token shows that the engine works. */
static inline bool kvw_exchange_streams_tokens(const struct kvw_exchange *x)
{
	return x->event_stream && x->status == 200 && kvw_exchange_computes(x);
}

/* Returns the id of the object at a worker that the request continues: a response, or a session of
 * SageMaker; len 0: none. */
static inline struct kvw_slice kvw_exchange_kept(const struct kvw_exchange *x)
{
	if (x->path.made_id.len > 0)
		return x->path.made_id;
	return x->route.previous_id.len > 0 ? x->route.previous_id : x->sagemaker.session;
}

/* Returns whether the client has a part of the answer, so that no other answer can replace it. */
static inline bool kvw_exchange_answering(const struct kvw_exchange *x)
{
	return x->response_state >= KVW_RESPONSE_STREAMING;
}

/* Begins an exchange with the bytes in client->in. on_timer: the function of x->timer. NULL: out of
 * memory. */
struct kvw_exchange *kvw_exchange_create(struct kvw_client *client, kvw_timer_fn on_timer);

/* Each function writes one state. A forbidden step leaves the state alone and makes the exchange
 * faulty. */
void kvw_exchange_request_state(struct kvw_exchange *x, enum kvw_request_state state);
void kvw_exchange_response_state(struct kvw_exchange *x, enum kvw_response_state state);

/* Ends the exchange: releases everything that it holds, reports to strategy, metrics and log, and
 * frees the client for its next request. Called exactly once. */
void kvw_exchange_end(struct kvw_exchange *x, enum kvw_end end);

/* Ends an exchange whose answer broke after its beginning was sent, and cuts the client's
 * connection, so that the client does not take the answer for complete. */
void kvw_exchange_cut(struct kvw_exchange *x, enum kvw_end end);

/* Informs the sources, once, if the request has emptied a cache. Called before the client can learn
 * of it, and at the latest at the end. */
void kvw_exchange_note_emptied(struct kvw_exchange *x);

/* Frees the request's bytes, which are not needed again. */
void kvw_exchange_drop_request(struct kvw_exchange *x);

#endif
