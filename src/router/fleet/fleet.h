/*
 * fleet.h - the workers: what is configured, what is known of them, which may be picked.
 *
 * Workers live as long as the fleet (discovery that adds and removes them comes later and will
 * count references). What changes about a worker is either an atomic in it, written by the control
 * thread and by passive failure counting, or part of an immutable view: the model table. The
 * control thread publishes a new view and frees the old one when every loop has passed a quiet
 * point (epoch.h).
 *
 * Threads: the control thread alone calls the kvw_fleet_set_* functions; loops call the rest, and both
 * report lost caches.
 */
#ifndef KVW_FLEET_H
#define KVW_FLEET_H

#include <netinet/in.h>
#include <stdatomic.h>
#include <sys/socket.h>

#include "config/config.h"
#include "kvway/route.h"
#include "fleet/ejection.h"
#include "fleet/ratio.h"
#include "fleet/stall.h"

struct kvw_tls; /* tls.h */

enum kvw_health {
	KVW_HEALTH_UNKNOWN, /* not probed yet: usable */
	KVW_HEALTH_UP,
	KVW_HEALTH_DOWN, /* out until a probe succeeds */
};

/* One vLLM server. */
struct kvw_worker {
	struct kvw_load load;  /* own cache lines, first */
	uint32_t id;           /* index in fleet->workers */
	uint64_t key;          /* hash of url */
	char *url;             /* scheme://host:port[/prefix], no trailing slash; owned */
	bool tls;              /* https */
	char *host;            /* name or address without brackets; owned */
	char *authority;       /* host:port as in the Host field; owned */
	char *path_prefix;     /* "" or "/prefix"; owned */
	char *api_key;         /* "" if none; owned */
	struct sockaddr_storage addr; /* resolved at start */
	socklen_t addr_len;
	bool models_given;     /* the configuration lists its models: do not ask */
	_Atomic uint8_t health;            /* enum kvw_health */
	_Atomic bool models_known;         /* its list was given or read at least once */
	struct kvw_ejection ejection;      /* by its answers */
	struct kvw_stall stall;            /* by their absence */
	_Atomic uint32_t generation;       /* grows when its cache is known to be lost */
	_Atomic uint32_t block_size;       /* 0: unknown */
	_Atomic uint64_t capacity_tokens;  /* usable KV tokens; 0: unknown */
	_Atomic uint64_t probes_failed;    /* since start */
	_Atomic int64_t slow_since_ns;     /* when it came or came back; 0: it may have a full share */
	_Atomic int64_t kv_full_until_ns;  /* its KV cache counts as full until then; 0: it is not */
	_Atomic int64_t models_read_ns;    /* when its list was read last; 0: never */
	_Atomic bool models_wanted;        /* a loop asks for a refresh */
	_Atomic uint64_t *changes;         /* the fleet's */
};

#define KVW_MODEL_WORDS (KVW_MAX_WORKERS / 64)

/* What loops and responses learn about a model; lives as long as the fleet. */
struct kvw_model {
	char *name;
	uint32_t index;                     /* for metric labels */
	_Atomic bool adapter;               /* a LoRA adapter, by the list of a worker that serves it */
	_Atomic uint32_t units_per_token_q16; /* learned bytes per token, 16.16 fixed point */
};

struct kvw_model_entry {
	struct kvw_model *model;
	uint64_t workers[KVW_MODEL_WORDS]; /* bit = worker id */
};

/* Immutable. Borrowed by a loop until its next quiet point. */
struct kvw_fleet_view {
	struct kvw_model_entry *models; /* ascending by name */
	size_t model_count;
	bool all_known; /* every worker's list is known: an unknown model is a 404 */
};

struct kvw_fleet {
	struct kvw_worker **workers; /* [count], by id; fixed after create */
	size_t count;
	const struct kvw_fleet_view *_Atomic view;
	const struct kvw_config *config; /* borrowed */
	struct kvw_epochs *epochs;       /* quiet points of the loops */
	struct kvw_strategy *strategy;   /* borrowed; gets the purges */
	struct kvw_tls *tls;             /* to workers; NULL: none is https */
	struct kvw_ejections ejections;
	struct kvw_ratios *ratios;       /* tokens per byte, by how prompts begin; owned */
	struct kvw_model **models;       /* every model ever seen; control thread only */
	size_t model_total;
	struct kvw_load_board *loads;    /* of all workers, by id; owned */
	_Atomic uint32_t down;           /* workers whose health is DOWN, or that stand still */
	_Atomic uint64_t changes;        /* grows after whatever candidates show has changed; > 0 */
};

/* Candidates as a loop keeps them from one request to the next. */
struct kvw_fleet_table {
	struct kvw_candidate *items; /* [fleet->count], the loop's own */
	size_t count;
	uint64_t version; /* for kvw_candidates; 0: the items are refilled next time */
};

/* Resolves every worker's host and, if one is https, loads upstream.tls. KVW_EINVAL: one of that cannot
 * be; `errors` says which. */
enum kvw_err kvw_fleet_create(const struct kvw_config *config, size_t loops, FILE *errors,
	struct kvw_fleet **out) KVW_MUST_CHECK;
/* For looking at only: no name is resolved, no certificate loaded, no worker can be connected to. */
enum kvw_err kvw_fleet_create_offline(
	const struct kvw_config *config, struct kvw_fleet **out) KVW_MUST_CHECK;
void kvw_fleet_destroy(struct kvw_fleet *fleet); /* NULL is allowed */

/* --- any thread --- */
/* Neither down nor ejected nor suspected to stand still. */
bool kvw_worker_usable(const struct kvw_worker *worker);
/* "up", or what keeps it from being usable. */
const char *kvw_worker_state_name(const struct kvw_worker *worker);
size_t kvw_fleet_usable_count(const struct kvw_fleet *fleet);

/* Candidates for a model (len 0: any); their loads lie on fleet->loads. items has room for fleet->count. Sets *known: some worker
 * lists the model, or none was asked for. Only workers that serve it are included. *entry (may be
 * NULL on return): its model. If all that serve it are down or ejected, the ejected ones are usable: an
 * answer that may be bad is better than none. */
size_t kvw_fleet_candidates(const struct kvw_fleet *fleet, struct kvw_slice model,
	struct kvw_candidate *items, bool *known, struct kvw_model **entry);

/* None of them is usable: those that are ejected or suspected, and not down, become it. */
void kvw_fleet_use_ejected(
	const struct kvw_fleet *fleet, struct kvw_candidate *items, size_t count);

/* kvw_fleet_candidates into a table, whose items are refilled only if something has changed since, or will change
 * with time alone. */
void kvw_fleet_read(const struct kvw_fleet *fleet, struct kvw_slice model,
	struct kvw_fleet_table *table, bool *known, struct kvw_model **entry);

/* An attempt's grade; why is logged if it is bad. trial: as kvw_fleet_picked said. */
void kvw_fleet_judge(struct kvw_fleet *fleet, struct kvw_worker *worker, enum kvw_grade grade,
	bool trial, const char *why, int64_t now_ns);
/* A request goes to the worker. True: it is the trial of an ejected one, and a grade is owed. */
bool kvw_fleet_picked(struct kvw_fleet *fleet, struct kvw_worker *worker, int64_t now_ns);

/* process_start_time_seconds changed, or kvway itself passed on a reset: purge. */
void kvw_fleet_cache_lost(struct kvw_fleet *fleet, struct kvw_worker *worker, const char *why);

/* Learns units (bytes) per token of a model from one answer's usage. */
void kvw_model_learn(struct kvw_model *model, uint64_t units, uint32_t prompt_tokens);
float kvw_model_tokens_per_unit(const struct kvw_model *model, double prior_bytes_per_token);
/* Tokens per unit of one request's prompt: 1 for token ids, else that of prompts that began alike,
 * else the model's (NULL: the prior). Fills *keys, to learn by when it is answered. */
float kvw_fleet_tokens_per_unit(const struct kvw_fleet *fleet, const struct kvw_model *model,
	const struct kvw_route_request *request, struct kvw_ratio_keys *keys);

/* --- control thread --- */
/* ok: a probe succeeded. Applies health.fall and health.rise; logs changes. */
void kvw_fleet_set_probe(struct kvw_fleet *fleet, struct kvw_worker *worker, bool ok,
	const char *why);
/* The worker's list from /v1/models (LoRA names too). Copies. */
enum kvw_err kvw_fleet_set_models(struct kvw_fleet *fleet, struct kvw_worker *worker,
	const char *const *names, size_t count) KVW_MUST_CHECK;
/* Which of these names, that the worker was just said to serve, are LoRA adapters. */
void kvw_fleet_set_adapters(struct kvw_fleet *fleet, const char *const *names,
	const bool *adapters, size_t count);
/* From vllm:cache_config_info: usable tokens = (num_gpu_blocks - 1) * block_size. */
void kvw_fleet_set_capacity(struct kvw_worker *worker, uint64_t tokens, uint32_t block_size);
/* From vllm:kv_cache_usage_perc (0 to 1) and the growth of vllm:num_preemptions_total since the
 * page before. Counts until the next page, or until that is overdue. */
void kvw_fleet_set_kv_use(struct kvw_fleet *fleet, struct kvw_worker *worker, double usage,
	double preemptions);
/* Its engine seems to stand still, does, or does not any more. */
void kvw_fleet_set_stall(
	struct kvw_fleet *fleet, struct kvw_worker *worker, enum kvw_stall_state state);
/* It is new, or it has just come back: slow start begins. */
void kvw_fleet_start_slowly(struct kvw_fleet *fleet, struct kvw_worker *worker);

#endif
