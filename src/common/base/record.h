/*
 * record.h - data about one request at its end, from which metrics and the access log are made.
 *
 * The proxy fills the record, and src/router/admin reads it once. Slices are borrowed for that
 * call.
 */
#ifndef KVW_RECORD_H
#define KVW_RECORD_H

#include "kvway/route.h"

/* How an exchange ended; the value of the label `end` of kvway_requests_total. */
enum kvw_end {
	KVW_END_COMPLETE,      /* whole answer delivered */
	KVW_END_LOCAL,         /* kvway itself answered: errors, /health, /metrics */
	KVW_END_CLIENT_GONE,   /* the client closed first */
	/* the worker failed after its first token, so the client was cut off */
	KVW_END_UPSTREAM_LOST,
	KVW_END_TIMEOUT,       /* a timeout ended it */
	KVW_END_SHUTDOWN,      /* kvway ended before the answer, so the client was cut off */
	KVW_END_COUNT
};

/* Returns the name of an end in metrics, access log and traces. */
const char *kvw_end_name(enum kvw_end end);

struct kvw_trace_context;

struct kvw_request_record {
	int64_t wall_ns;        /* start, wall clock */
	int64_t start_ns;       /* start of the request, monotonic: when its first byte came */
	int64_t total_ns;       /* time until the last byte was passed to the client */
	/* time from start_ns to the first byte of the body; 0: there was none */
	int64_t first_token_ns;
	int64_t added_ns;       /* of that, spent in kvway: request read whole to forwarded, plus
	                           first byte received to handed on */
	enum kvw_end end;
	/* with KVW_END_TIMEOUT: name of the setting that ended the request, or "key"; NULL: not
	 * known */
	const char *timeout;
	/* Cause of the longest wait before the request was sent to a worker, a word of wait.h;
	 * NULL: it did not wait. */
	const char *waited_for;
	int64_t waited_ns;      /* sum of all waits */
	int status;             /* status sent to the client; 0: none was sent */
	enum kvw_api api;
	struct kvw_slice method, target; /* target without its query */
	struct kvw_slice request_id;
	struct kvw_slice model;          /* the request's model; len 0: unknown, or none */
	/* index of the model's struct kvw_model + 1; 0: unknown, or no model */
	uint32_t model_label;
	/* the model's group in which the request was counted; len 0: none */
	struct kvw_slice group;
	uint8_t group_label; /* number of the group by kvw_metrics_group, if there is a group */
	struct kvw_slice client;         /* address */
	struct kvw_slice key, tenant;    /* names; len 0: none */
	/* subject of the client's certificate; len 0: the client has none */
	struct kvw_slice client_certificate;
	struct kvw_slice worker_url;     /* len 0: none was chosen */
	uint32_t worker_id;              /* id of the worker; UINT32_MAX: none was chosen */
	enum kvw_reason reason;          /* if a worker was chosen, like the next one */
	enum kvw_knowledge knowledge;
	/* The worker that prefilled the prompt for this request; len 0: none did. The number of
	 * tokens is the one in its answer; 0: not known. */
	struct kvw_slice prefiller_url;
	int64_t prefill_ns;
	uint32_t prefill_prompt, prefill_cached;
	uint32_t attempts;               /* workers tried */
	uint32_t stale_retries; /* number of kept connections that turned out to be closed */
	uint64_t request_bytes, response_bytes; /* bodies */
	bool stream;
	uint32_t stream_chunks;          /* reads of a streamed answer that brought payload */
	/* predicted numbers of tokens, if routing used the content */
	uint32_t predicted_prompt, predicted_cached;
	uint32_t predicted_fragments; /* tokens of predicted_cached that are not part of a prefix */
	/* the prediction was made from exact tokens; it was right within one block */
	bool exact, exact_right;
	bool prompt_known, cached_known, completion_known;
	uint32_t prompt_tokens, cached_tokens, completion_tokens; /* from usage */
	/* tokens that kvway has estimated, as the answer reports none; 0: not estimated */
	uint32_t estimated_prompt, estimated_completion;
	/* place in a distributed trace (trace/context.h); NULL: none */
	const struct kvw_trace_context *trace;
};

#endif
