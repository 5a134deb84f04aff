/*
 * api_path.h - classifies request paths.
 */
#ifndef KVW_API_PATH_H
#define KVW_API_PATH_H

#include "kvway/route_request.h"

/* kvway's treatment of a path before routing. */
enum kvw_path_kind {
	KVW_PATH_FORWARD,        /* goes to a worker */
	/* kvway answers: /health /ready /ping /metrics /v1/models[/{id}] /v1/usage */
	KVW_PATH_LOCAL,
	KVW_PATH_ENGINE_CONTROL, /* /sleep and the like: 403 unless expose.engine_control */
	KVW_PATH_LORA            /* LoRA loading: 403 unless expose.lora */
};

struct kvw_path_info {
	enum kvw_path_kind kind;
	/* All members follow from the path alone: the caller checks the method; for /invocations
	 * the scan of the body finds the API. */
	enum kvw_api api;
	bool prompt;      /* a POST here carries a prompt: it is read whole and routed by content */
	bool unsalted;    /* ... but workers accept no cache_salt on this path */
	/* ... and take the number of a data-parallel rank from the body's `routed_dp_rank` alone */
	bool rank_in_body;
	bool repeatable;  /* a POST here is inference: may be retried until its first token */
	bool empties_cache; /* a POST here may empty the worker's prefix cache */
	bool sleeps, wakes; /* a POST here puts the engine to sleep, or wakes it */
	bool response;      /* /v1/responses/{id}[/...] */
	bool model_card;    /* /v1/models/{id} */
	/* For an unknown path: the id in /v1/KIND/{id}[/...]; otherwise len 0. */
	struct kvw_slice made_id;
};

/* Classifies a path. target: the request target as received (origin or absolute form; the query is
 * ignored). Percent-escapes and repeated or trailing slashes cannot bypass a guard: they are folded
 * first. */
struct kvw_path_info kvw_path_classify(struct kvw_slice target);

/* Returns whether the target's path ends with /cancel directly after the id that kvw_path_info
 * has. */
bool kvw_path_cancels(struct kvw_slice target, struct kvw_slice id);

/* Returns whether the target's path, with percent-escapes decoded, has no segment "." or ".." and
 * no encoded slash. Some servers resolve these and others do not, so that they read such paths
 * differently. */
bool kvw_path_straight(struct kvw_slice target);

/* Returns whether the target's path is straight (kvw_path_straight) and, after folding, matches one
 * of these patterns (config/path_pattern.h). */
bool kvw_path_listed(struct kvw_slice target, const char *const *patterns, size_t count);

/* The paths of vLLM that serve inference, /v1/models and /v1/usage, as patterns. */
extern const char *const kvw_inference_paths[];
extern const size_t kvw_inference_path_count;

/* Decodes the model in a path /v1/models/{id} without query into `out`. Returns its length; 0: the
 * path names none, or the name is longer than `room` allows. */
size_t kvw_path_model(struct kvw_slice path, char *out, size_t room);

/* Returns the query's first parameter of that name, decoded into memory that the caller frees. data
 * NULL: there is none, it is empty, or memory is out. */
struct kvw_slice kvw_target_parameter(struct kvw_slice target, const char *name);

/* For a path that wakes an engine: whether the query names parts of the engine, so that the other
 * parts may stay asleep. */
bool kvw_target_wakes_parts(struct kvw_slice target);

/* Returns a label for metrics, for example "chat". */
const char *kvw_api_name(enum kvw_api api);

/* Returns whether the path belongs to Anthropic's API, with its own errors and header fields. */
static inline bool kvw_api_anthropic(enum kvw_api api)
{
	return api == KVW_API_MESSAGES || api == KVW_API_COUNT_TOKENS;
}

#endif
