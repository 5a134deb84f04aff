/*
 * plan.h - the plan of the objects: a manifest and the options, merged and checked.
 *
 * The functions that write objects (objects.h) use only the plan. It has everything in which two of
 * them must agree, such as names and ports.
 */
#ifndef KVW_RENDER_PLAN_H
#define KVW_RENDER_PLAN_H

#include "render/manifest.h"
#include "render/options.h"

/* longest name; with suffixes it stays below the 63 characters of a label */
#define KVW_RENDER_NAME 40

/* Ports of kvway's pods. */
#define KVW_PORT_CLIENTS  8080
#define KVW_PORT_PULL     8300 /* port to which LMCache's workers report */
#define KVW_PORT_REPLY    8400
#define KVW_PORT_BEATS    8500
#define KVW_PORT_SERVERS  9300 /* port to which LMCache's servers report */
/* Ports of workers. */
#define KVW_PORT_EVENTS   5557
#define KVW_PORT_REPLAY   5558
#define KVW_PORT_COMMANDS 8600 /* port of rank 0; each further rank has the next one */
#define KVW_PORT_SERVER   8600 /* port of LMCache's server for HTTP, on loopback */
/* Ports of caches. */
#define KVW_PORT_REDIS    6379
#define KVW_PORT_KVTIERD  9200

/* In seconds. A kvway that ends goes on serving until load balancers have noticed, then waits for
 * running requests. A worker's pod goes on until kvway no longer sends requests to its address and
 * those that run there have ended. */
#define KVW_SETTLE_S       10
#define KVW_DRAIN_S        60
#define KVW_KVWAY_GRACE_S  (KVW_SETTLE_S + KVW_DRAIN_S + 10)
#define KVW_NOTICE_S       15
#define KVW_WORKER_PAUSE_S (KVW_NOTICE_S + KVW_DRAIN_S)
#define KVW_WORKER_GRACE_S (KVW_WORKER_PAUSE_S + 15)

enum kvw_model_source {
	KVW_SOURCE_S3,
	KVW_SOURCE_FSX,
	KVW_SOURCE_HF,
	KVW_SOURCE_VOLUME,
	KVW_SOURCE_CLAIM
};

/* How caches and events are set for the workers' vLLM. */
enum kvw_engine_flags {
	KVW_BY_ARGS, /* flags of vLLM */
	KVW_BY_ENV,  /* by variables OPTION_... of the Large Model Inference container */
	KVW_BY_NONE, /* not at all: the command is a shell's, to which no flags can be appended */
};

/* A HorizontalPodAutoscaler. */
struct kvw_scaling {
	bool on;
	int least, most; /* pods */
	int up_s, down_s;
};

/* The pools of a manifest with spec.pdSpec. */
enum kvw_pool_id { KVW_POOL_PREFILL, KVW_POOL_DECODE, KVW_POOLS };

/* One pool, and the manifest's fields with its own settings. */
struct kvw_pool {
	const char *role;       /* the workers' role, for kvway */
	const char *suffix;     /* ends the names of the pool's objects */
	enum kvw_field_id args; /* written behind the arguments of all workers */
	enum kvw_field_id selector, limits, requests;
	int replicas;
	struct kvw_scaling scaling;
	int tensor_parallel, ranks;
};

/* Texts without a size are borrowed from the manifest, the options or constants. They are never
 * NULL; "": there is none. */
struct kvw_plan {
	const struct kvw_manifest *manifest;
	const struct kvw_render_options *options;
	const char *name, *namespace;
	const char *model;         /* its name in requests */
	const char *model_version; /* a label */
	const char *image;
	const char *model_path;

	enum kvw_model_source source;
	const char *mount_name;     /* the model's volume */
	char bucket[64], region[64];
	char location[1024];        /* a folder, without a slash at its begin and end */
	char hf_model[256], hf_commit[64];
	char claim[256];
	bool prefetch;

	int replicas, kvway_replicas;
	struct kvw_scaling scaling, kvway_scaling;
	/* There are several workers, as many as an autoscaler makes, or two pools: kvway finds them
	 * by the API of Kubernetes, a single one by DNS. */
	bool several;
	bool split; /* prefill and decode have a pool each */
	struct kvw_pool pools[KVW_POOLS];
	const struct kvw_pool *pool; /* set in the plan of one pool (kvw_plan_pool), else NULL */
	bool same_zone;              /* both pools run in one zone */
	const char *zone;
	const char *transfer; /* pd.transfer */
	int64_t threshold;    /* pd.threshold; -1: none */
	enum kvw_field_id limits, requests; /* the fields for the worker's container */
	int port;
	int ranks; /* ranks of one worker: tensor parallel size times pipeline parallel size */
	int tensor_parallel;
	int gpus;  /* of a JumpStartModel's worker */
	const char *gpu_resource;
	char partition[80]; /* the kind of gpu_resource, if that is a part of a GPU */
	const struct kvw_node *args, *env;
	enum kvw_engine_flags engine_flags;

	const char *strategy;
	const char *session_key;   /* name of a header field, or else of a member of the body */
	const char *hash_seed;     /* the workers' PYTHONHASHSEED; "": it is not in the manifest */
	bool events;     /* workers publish KV events, which kvway reads */
	/* LMCache reports to kvway: its workers as to a controller, its servers as to a
	 * coordinator. */
	bool controller;

	bool l1, l2;
	bool connector;           /* vLLM uses some cache */
	const char *cache_file;   /* the user's own file of the cache's settings */
	bool settings;            /* the workers get a file of them from kvway */
	bool server;              /* LMCache is a process of its own (plan_lmcache.h) */
	bool version_unknown;     /* nothing says the version of LMCache */
	bool own_redis, own_kvtierd;
	char l2_url[1024]; /* the workers' */
	bool l2_secret;    /* the URL has a password */
	const char *nvme;  /* folder on the nodes for kvtierd; "": none */

	bool joined;            /* the kvtierds of the nodes share chunks by redis_url */
	char redis_url[1024];   /* URL of the Redis that kvtierds and kvways use; "": none */
	char redis_shown[1024]; /* the same URL without user and password */
	bool redis_secret;      /* it has one */

	bool metrics;
	int interval;
	const char *metrics_path;
	const char *health_path; /* of workers */
	char invocation[64];     /* the path of vLLM that clients are shown */
	bool tls, ingress;
	const char *acm, *domain;
	int deploy_s;
};

/* Makes the plan, and reports conflicts (mistakes), fields without effect (notes) and decisions
 * (remarks). The plan borrows from the manifest and the options; it need not be finished. */
void kvw_plan_make(const struct kvw_manifest *manifest, const struct kvw_render_options *options,
	struct kvw_report *mistakes, struct kvw_report *notes, struct kvw_report *remarks,
	struct kvw_plan *out);

/* Makes the plan that the writer of one pool's workers reads: it has the pool's arguments,
 * resources, replicas and scaling, and borrows from the whole plan. */
void kvw_plan_pool(const struct kvw_plan *plan, enum kvw_pool_id id, struct kvw_plan *out);

/* Returns whether the workers' arguments have this flag of vLLM, whose name is without dashes, or
 * its short form. *value (if value is not NULL) is the flag's value, borrowed, or "". */
bool kvw_plan_flag(const struct kvw_plan *plan, const char *name, const char **value);

/* Returns the user's entry for this variable of the workers; NULL: there is none. */
const struct kvw_node *kvw_plan_env(const struct kvw_plan *plan, const char *name);

/* Returns the value of that entry; NULL: the variable is not set, is empty, or has its value
 * elsewhere (`valueFrom`). */
const char *kvw_plan_env_text(const struct kvw_plan *plan, const char *name);

/* Reports a text about that entry, which must exist. */
void kvw_plan_env_report(
	const struct kvw_plan *plan, const char *name, struct kvw_report *report, const char *text);

#endif
