/*
 * route_request.h - the parts of one request that routing reads.
 *
 * src/router/openai fills it from the head and the body, routing/ reads it. The prompt appears only
 * as a chain of hashes: chunk i's hash covers all chunks before it, too, so two prompts share a
 * prefix of k chunks exactly when their k-th hashes are equal (64 bits: a collision costs one badly
 * predicted hit, never a wrong answer).
 */
#ifndef KVW_ROUTE_REQUEST_H
#define KVW_ROUTE_REQUEST_H

#include <stdbool.h>
#include <stdint.h>

#include "kvway/exact.h"
#include "kvway/slice.h"

/* Which format the body on a path has. The list is fixed, since it is also the label `route` of
 * metrics. */
enum kvw_api {
	KVW_API_OTHER = 0, /* not known: routed by load alone */
	KVW_API_COMPLETIONS,
	KVW_API_CHAT,
	KVW_API_RESPONSES,
	KVW_API_MESSAGES,     /* Anthropic */
	KVW_API_COUNT_TOKENS, /* Anthropic /v1/messages/count_tokens */
	KVW_API_EMBEDDINGS,
	KVW_API_RERANK, /* rerank, score, pooling, classify: only the model is read */
	KVW_API_TOKENIZE,
	KVW_API_AUDIO, /* forms for transcription and translation: only the model is read */
	/* SageMaker's /invocations, before the body has shown which of the others it is. */
	KVW_API_INVOCATIONS,
	/* A completion with other names of members (token_ids, input_ids, text), before its body is
	 * read. */
	KVW_API_GENERATE,
	KVW_API_CHAT_BATCH,  /* several chats in one body, before it is read */
	KVW_API_COUNT
};

/* One chunk of a prompt. 16 bytes, so that a lookup touches few cache lines. */
struct kvw_chunk {
	uint64_t hash;     /* hash of this chunk and all before it in its chain */
	uint32_t end;      /* where it ends, in units: bytes of canonical text, or token ids */
	uint32_t reserved; /* 0 */
};

/* A text within a prompt, hashed by its own bytes, model and salt, independent of what precedes
 * it. */
struct kvw_segment {
	uint64_t hash;
	uint32_t from, to; /* where it begins and ends, in units of its chain */
};

/* Why a request has no exact tokens: a label of metrics. */
enum kvw_inexact {
	KVW_INEXACT_NOT,         /* the request has exact tokens */
	KVW_INEXACT_NOT_WANTED,  /* the strategy does not use them */
	KVW_INEXACT_NO_TOKENS,   /* no worker can tokenize this kind of prompt */
	KVW_INEXACT_NO_VIEW, /* no worker reports its blocks, so that tokens would be of no use */
	KVW_INEXACT_TIMEOUT,     /* the asked worker did not answer in time */
	KVW_INEXACT_FAILED,      /* the asked worker answered an error, or nonsense */
	KVW_INEXACT_BUSY,        /* too many requests for tokens were under way */
	/* only one worker can serve the request, so that there is nothing to compare */
	KVW_INEXACT_NO_CHOICE,
	KVW_INEXACT_COUNT
};

/* The parts of a request that routing reads. Borrowed: valid until the scan that made it is
 * reset. */
struct kvw_route_request {
	enum kvw_api api;
	struct kvw_slice model;       /* the model's name, unescaped; len 0: the body names none */
	struct kvw_slice session;     /* session key from header, cookie or body; len 0: none */
	struct kvw_slice previous_id; /* /v1/responses: previous_response_id; len 0: none */
	bool stream;                  /* the body asks for a stream */
	bool include_usage;           /* stream_options.include_usage is true */
	bool content_known;           /* the chains below describe the prompt */
	/* the path generates: the prompt is inserted into the tree and its prefill charged */
	bool teaches;
	uint32_t choices;             /* answers requested per prompt; 0: one */
	uint32_t answer_most;         /* requested limit of an answer's tokens; 0: none */
	bool token_ids;               /* units are token ids; otherwise bytes */
	float tokens_per_unit; /* 1 for token ids; otherwise learned per model (at first 1/4) */

	/* All chains one after another; most requests have one. chain_ends[c] is the index in
	 * `chunks` just past chain c. A prompt without text has a chain without chunks. */
	const struct kvw_chunk *chunks;
	uint32_t chunk_count;
	const uint32_t *chain_ends;
	uint32_t chain_count;
	uint64_t seed; /* h_0: hash of format, model, LoRA and salt */
	/* number of the tenant, whose sessions are separate from other tenants'; 0: none */
	uint64_t tenant;

	/* Texts of the only chain that workers can reuse at any position; none if the request
	 * forbids such reuse or the strategy does not use it. */
	const struct kvw_segment *segments;
	uint32_t segment_count;

	/* The following members describe the prompt by its exact tokens, for a strategy that wants
	 * them. */
	enum kvw_inexact inexact;           /* why there are none; KVW_INEXACT_NOT: there are */
	uint32_t exact_tokens;              /* length of the prompt in tokens */
	uint32_t exact_count;               /* number of exact chains, at most KVW_EXACT_CHAINS */
	const struct kvw_exact_chain *exact;
};

/* How one forwarded request ended, for kvw_strategy_ops.done. */
struct kvw_outcome {
	int status;                /* HTTP status that the client was sent; 0: none */
	bool first_token;          /* the first token arrived */
	bool completed;            /* the answer arrived whole */
	bool streamed;             /* the answer was a stream: its first byte was its first token */
	bool prompt_known;         /* prompt_tokens is from the worker's usage */
	bool cached_known;         /* prompt_tokens and cached_tokens are from the usage */
	uint32_t prompt_tokens;    /* usage.prompt_tokens */
	uint32_t cached_tokens;    /* usage.prompt_tokens_details.cached_tokens */
	int64_t first_token_ns;    /* time from the pick to the first token; 0: there was none */
	int64_t ahead_ns;          /* ahead_ns as in struct kvw_lease */
	int64_t behind_ns;
	int64_t served_ns;

	/* The request as it was picked, if the worker failed or answered an error before any token:
	 * then the worker holds no more of the prompt than before. NULL: the worker may hold the
	 * prompt, or the request's chains were not kept. Borrowed during the call. */
	const struct kvw_route_request *unserved;
};

#endif
