/*
 * record.h - facts of one request at its end: metrics and access log are made from them.
 *
 * The proxy fills the record, src/router/admin reads it once. Slices are borrowed for that call.
 */
#ifndef KVW_RECORD_H
#define KVW_RECORD_H

#include "kvway/route.h"

/* How an exchange ended. Label `end` of kvway_requests_total. */
enum kvw_end {
	KVW_END_COMPLETE,      /* whole answer delivered */
	KVW_END_LOCAL,         /* answered here: errors, /health, /metrics */
	KVW_END_CLIENT_GONE,   /* the client closed first */
	KVW_END_UPSTREAM_LOST, /* the worker failed after its first token: client cut off */
	KVW_END_TIMEOUT,       /* a timeout ended it */
	KVW_END_SHUTDOWN,      /* kvway ended first: client's connection cut */
	KVW_END_COUNT
};

/* Name of an end in metrics, access log and traces. */
const char *kvw_end_name(enum kvw_end end);

struct kvw_request_record {
	int64_t wall_ns;        /* start, wall clock */
	int64_t start_ns;       /* start, monotonic: first byte of the request */
	int64_t total_ns;       /* until the last byte was passed to the client */
	int64_t first_token_ns; /* from start_ns to the first body byte; 0: none */
	int64_t added_ns;       /* of that, spent in kvway: request read whole to forwarded, plus
	                           first byte received to handed on */
	enum kvw_end end;
	const char *timeout;    /* with KVW_END_TIMEOUT: the setting, or "key"; NULL: not known */
	/* Cause of its longest wait before it was sent to a worker: a word of wait.h; NULL: no
	 * wait. */
	const char *waited_for;
	int64_t waited_ns;      /* sum of all waits */
	int status;             /* sent to the client; 0: none */
	enum kvw_api api;
	struct kvw_slice method, target; /* target without its query */
	struct kvw_slice request_id;
	struct kvw_slice model;          /* len 0: unknown model or none */
	uint32_t model_label;            /* index of its struct kvw_model + 1; 0: unknown or none */
	struct kvw_slice group;          /* of the model's groups; len 0: none */
	uint8_t group_label;             /* of kvw_metrics_group, if there is a group */
	struct kvw_slice client;         /* address */
	struct kvw_slice key, tenant;    /* names; len 0: none */
	struct kvw_slice client_certificate; /* subject of the client's certificate; len 0: none */
	struct kvw_slice worker_url;     /* len 0: none was chosen */
	uint32_t worker_id;              /* UINT32_MAX: none was chosen */
	enum kvw_reason reason;          /* if a worker was chosen */
	/* The worker that has prefilled the prompt for it; len 0: none has. Tokens by its
	 * answer; 0: not known. */
	struct kvw_slice prefiller_url;
	int64_t prefill_ns;
	uint32_t prefill_prompt, prefill_cached;
	uint32_t attempts;               /* workers tried */
	uint32_t stale_retries;          /* stale keep-alive connections met */
	uint64_t request_bytes, response_bytes; /* bodies */
	bool stream;
	uint32_t stream_chunks;          /* reads of a streamed answer that brought payload */
	uint32_t predicted_prompt, predicted_cached; /* tokens, if reason is by content */
	uint32_t predicted_fragments; /* part of predicted_cached that is no prefix */
	bool exact, exact_right; /* predicted from exact tokens; right within a block */
	bool prompt_known, cached_known, completion_known;
	uint32_t prompt_tokens, cached_tokens, completion_tokens; /* from usage */
};

#endif
