/*
 * plan.h - the plan of the objects: a manifest and the options, merged and checked.
 *
 * The writers of objects (objects.h) read only the plan. It has all that two of them must agree on,
 * such as names and ports.
 */
#ifndef KVW_RENDER_PLAN_H
#define KVW_RENDER_PLAN_H

#include "render/manifest.h"
#include "render/options.h"

#define KVW_RENDER_NAME 40 /* longest name; suffixes keep it below the 63 of a label */

/* Ports of kvway's pods. */
#define KVW_PORT_CLIENTS  8080
#define KVW_PORT_PULL     8300 /* where LMCache's workers report to */
#define KVW_PORT_REPLY    8400
#define KVW_PORT_BEATS    8500
/* Ports of workers. */
#define KVW_PORT_EVENTS   5557
#define KVW_PORT_REPLAY   5558
#define KVW_PORT_COMMANDS 8600 /* of rank 0; each further rank has the next one */
/* Ports of caches. */
#define KVW_PORT_REDIS    6379
#define KVW_PORT_KVTIERD  9200

/* Seconds. kvway keeps serving while load balancers notice, then ends what runs. A worker's pod
 * goes on until kvway has left its address and the requests there are over. */
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

/* Way to set caches and events for the workers' vLLM. */
enum kvw_engine_flags {
	KVW_BY_ARGS, /* flags of vLLM */
	KVW_BY_ENV,  /* OPTION_... of the Large Model Inference container */
	KVW_BY_NONE, /* a shell's command, to which no flags can be appended */
};

/* A HorizontalPodAutoscaler. */
struct kvw_scaling {
	bool on;
	int least, most; /* pods */
	int up_s, down_s;
};

/* Pools of a manifest with spec.pdSpec. */
enum kvw_pool_id { KVW_POOL_PREFILL, KVW_POOL_DECODE, KVW_POOLS };

/* One of them, and where the manifest has what is its own. */
struct kvw_pool {
	const char *role;       /* of its workers, for kvway */
	const char *suffix;     /* of its objects' names */
	enum kvw_field_id args; /* behind those of all workers */
	enum kvw_field_id selector, limits, requests;
	int replicas;
	struct kvw_scaling scaling;
	int tensor_parallel, ranks;
};

/* Texts without a size are borrowed from the manifest, the options or constants;
 * never NULL, "": none. */
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
	char location[1024];        /* folder, without a slash at either end */
	char hf_model[256], hf_commit[64];
	char claim[256];
	bool prefetch;

	int replicas, kvway_replicas;
	struct kvw_scaling scaling, kvway_scaling;
	/* Workers, or as many as an autoscaler makes, or two pools: kvway finds them by the API of
	 * Kubernetes, one by DNS. */
	bool several;
	bool split; /* prefill and decode in two pools */
	struct kvw_pool pools[KVW_POOLS];
	const struct kvw_pool *pool; /* in a view of one pool (kvw_plan_pool), else NULL */
	bool same_zone;              /* for both pools */
	const char *zone;
	const char *transfer; /* pd.transfer */
	int64_t threshold;    /* pd.threshold; -1: none */
	enum kvw_field_id limits, requests; /* of the worker's container */
	int port;
	int ranks; /* of one worker: tensor parallel times pipeline parallel */
	int tensor_parallel;
	int gpus;  /* of a JumpStartModel's worker */
	const char *gpu_resource;
	char partition[80]; /* what gpu_resource is, if it is a part of a GPU */
	const struct kvw_node *args, *env;
	enum kvw_engine_flags engine_flags;

	const char *strategy;
	const char *session_key;   /* a header field, or else a member of the body */
	const char *hash_seed;     /* the workers' PYTHONHASHSEED; "": only they know it */
	bool events;     /* workers publish KV events, kvway reads them */
	bool controller; /* LMCache's workers report to kvway */

	bool l1, l2;
	bool connector;           /* some cache is attached to vLLM */
	const char *cache_file;   /* the user's own configuration of it */
	bool own_redis, own_kvtierd;
	char l2_url[1024]; /* the workers' */
	bool l2_secret;    /* the URL has a password */
	const char *nvme;  /* folder of the nodes, for kvtierd; "": none */

	bool joined;            /* the nodes' kvtierds share through redis_url */
	char redis_url[1024];   /* of the Redis that kvtierds and kvways use; "": none */
	char redis_shown[1024]; /* the same, without user and password */
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

/* Makes the plan and reports conflicts (mistakes), fields without effect (notes) and decisions
 * (remarks). The plan borrows from both; nothing to finish. */
void kvw_plan_make(const struct kvw_manifest *manifest, const struct kvw_render_options *options,
	struct kvw_report *mistakes, struct kvw_report *notes, struct kvw_report *remarks,
	struct kvw_plan *out);

/* The plan as the writer of one pool's workers reads it: with the pool's arguments, resources,
 * replicas and scaling. It borrows from the plan. */
void kvw_plan_pool(const struct kvw_plan *plan, enum kvw_pool_id id, struct kvw_plan *out);

/* Whether the workers' arguments have this flag of vLLM (without its dashes), or its short form;
 * its value, "" if it has none, in *value, which is borrowed, if that is not NULL. */
bool kvw_plan_flag(const struct kvw_plan *plan, const char *name, const char **value);

/* The user's entry of this variable of the workers; NULL: none. */
const struct kvw_node *kvw_plan_env(const struct kvw_plan *plan, const char *name);

/* Its value; NULL: it is not set, empty, or not in the manifest (`valueFrom`). */
const char *kvw_plan_env_text(const struct kvw_plan *plan, const char *name);

/* Reports about that entry, which must be there. */
void kvw_plan_env_report(
	const struct kvw_plan *plan, const char *name, struct kvw_report *report, const char *text);

#endif
