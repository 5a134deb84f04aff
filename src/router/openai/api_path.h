/*
 * api_path.h - what a path means to the router.
 */
#ifndef KVW_API_PATH_H
#define KVW_API_PATH_H

#include "kvway/route_request.h"

/* What kvway itself does with a path before routing. */
enum kvw_path_kind {
	KVW_PATH_FORWARD,        /* goes to a worker */
	/* Answered here: /health /ready /ping /metrics /v1/models[/{id}] */
	KVW_PATH_LOCAL,
	KVW_PATH_ENGINE_CONTROL, /* /sleep ...: 403 unless expose.engine_control */
	KVW_PATH_LORA            /* LoRA loading: 403 unless expose.lora */
};

struct kvw_path_info {
	enum kvw_path_kind kind;
	/* By path alone, as all of this: the caller checks the method;
	 * of /invocations the scan of its body says which it is. */
	enum kvw_api api;
	bool prompt;      /* a POST here carries a prompt: read whole, routed by content */
	bool unsalted;    /* ... and workers take no cache_salt here */
	bool repeatable;  /* a POST here is inference: may be repeated until its first token */
	bool empties_cache; /* a worker that does a POST here may have lost its prefix cache */
	bool sleeps, wakes; /* a POST here puts the engine to sleep, or ends that */
	bool response;      /* /v1/responses/{id}[/...] */
	bool model_card;    /* /v1/models/{id} */
	/* Of a path that is not known: the id in /v1/KIND/{id}[/...]; else len 0. */
	struct kvw_slice made_id;
};

/* target: the request target as received (origin or absolute form; query ignored). Percent-escapes
 * and repeated or trailing slashes cannot be used to slip past a guard: they are folded first. */
struct kvw_path_info kvw_path_classify(struct kvw_slice target);

/* Does the target's path end with /cancel right behind the id, of kvw_path_info? */
bool kvw_path_cancels(struct kvw_slice target, struct kvw_slice id);

/* Has the target's path no segment "." or "..", and no slash but plain ones, percent-escapes
 * decoded? Of any other, servers that resolve these and servers that do not make different
 * paths. */
bool kvw_path_straight(struct kvw_slice target);

/* Is the target's path straight and, folded likewise, one of these patterns
 * (config/path_pattern.h)? */
bool kvw_path_listed(struct kvw_slice target, const char *const *patterns, size_t count);

/* The paths of vLLM that serve inference, and /v1/models, as patterns. */
extern const char *const kvw_inference_paths[];
extern const size_t kvw_inference_path_count;

/* The model in a path /v1/models/{id} without query, decoded into `out`. Returns its length; 0:
 * there is none, or none as short as `room`. */
size_t kvw_path_model(struct kvw_slice path, char *out, size_t room);

/* The query's first parameter of that name, decoded into memory that the caller frees. Data NULL:
 * there is none, it is empty, or there is no memory. */
struct kvw_slice kvw_target_parameter(struct kvw_slice target, struct kvw_slice name);

/* Of a path that wakes an engine: does the query name parts of it,
 * so that the rest may sleep on? */
bool kvw_target_wakes_parts(struct kvw_slice target);

/* Label text, for example "chat". */
const char *kvw_api_name(enum kvw_api api);

/* Are its clients Anthropic's, with errors and header fields of their own? */
static inline bool kvw_api_anthropic(enum kvw_api api)
{
	return api == KVW_API_MESSAGES || api == KVW_API_COUNT_TOKENS;
}

#endif
