/*
 * api_path.h - classifies request paths.
 */
#ifndef KVW_API_PATH_H
#define KVW_API_PATH_H

#include "kvway/route_request.h"

/* kvway's own treatment of a path before routing. */
enum kvw_path_kind {
	KVW_PATH_FORWARD,        /* goes to a worker */
	/* Answered here: /health /ready /ping /metrics /v1/models[/{id}] */
	KVW_PATH_LOCAL,
	KVW_PATH_ENGINE_CONTROL, /* /sleep ...: 403 unless expose.engine_control */
	KVW_PATH_LORA            /* LoRA loading: 403 unless expose.lora */
};

struct kvw_path_info {
	enum kvw_path_kind kind;
	/* By path alone, as all members: the caller checks the method; for /invocations the scan of
	 * the body finds the API. */
	enum kvw_api api;
	bool prompt;      /* a POST here carries a prompt: read whole, routed by content */
	bool unsalted;    /* ... but workers accept no cache_salt here */
	bool repeatable;  /* a POST here is inference: may be retried until its first token */
	bool empties_cache; /* a POST here may empty the worker's prefix cache */
	bool sleeps, wakes; /* a POST here puts the engine to sleep, or wakes it */
	bool response;      /* /v1/responses/{id}[/...] */
	bool model_card;    /* /v1/models/{id} */
	/* For an unknown path: the id in /v1/KIND/{id}[/...]; else len 0. */
	struct kvw_slice made_id;
};

/* target: the request target as received (origin or absolute form; query ignored). Percent-escapes
 * and repeated or trailing slashes cannot bypass a guard: they are folded first. */
struct kvw_path_info kvw_path_classify(struct kvw_slice target);

/* Whether the target's path ends with /cancel right after the id of kvw_path_info. */
bool kvw_path_cancels(struct kvw_slice target, struct kvw_slice id);

/* Whether the target's path, with percent-escapes decoded, has no segment "." or ".." and no
 * encoded slash. Servers that resolve these and servers that do not read such paths differently. */
bool kvw_path_straight(struct kvw_slice target);

/* Whether the target's path is straight and, folded likewise, matches one of these patterns
 * (config/path_pattern.h). */
bool kvw_path_listed(struct kvw_slice target, const char *const *patterns, size_t count);

/* The paths of vLLM that serve inference, and /v1/models, as patterns. */
extern const char *const kvw_inference_paths[];
extern const size_t kvw_inference_path_count;

/* The model in a path /v1/models/{id} without query, decoded into `out`. Returns its length; 0:
 * there is none, or it is longer than `room` allows. */
size_t kvw_path_model(struct kvw_slice path, char *out, size_t room);

/* The query's first parameter of that name, decoded into memory that the caller frees. Data NULL:
 * there is none, it is empty, or there is no memory. */
struct kvw_slice kvw_target_parameter(struct kvw_slice target, struct kvw_slice name);

/* For a path that wakes an engine: whether the query names parts of the engine, so that the rest
 * may stay asleep. */
bool kvw_target_wakes_parts(struct kvw_slice target);

/* Label text, for example "chat". */
const char *kvw_api_name(enum kvw_api api);

/* Returns whether the path belongs to Anthropic's API, with its own errors and header fields. */
static inline bool kvw_api_anthropic(enum kvw_api api)
{
	return api == KVW_API_MESSAGES || api == KVW_API_COUNT_TOKENS;
}

#endif
