/*
 * config.h - the configuration as the program reads it.
 *
 * Every member comes from config/keys.def; the loader fills all of them, so a reader never asks
 * whether a key was given. A loaded configuration is immutable and owned by the caller.
 *
 * Each function that makes one writes every mistake it finds to `errors`, a line each:
 *
 *     FILE:LINE:COLUMN: KEY: found ..., expected ...; did you mean `x`?
 *
 * and returns KVW_EINVAL (at least one mistake), KVW_EIO (the file cannot be read; also
 * written) or KVW_ENOMEM (the caller reports it). *out is set only on KVW_OK. Lines and columns
 * count from 1, columns in characters. `strategies` is the NULL-terminated list of what
 * routing.strategy may name; their names and own settings are read during the call only, so that this
 * folder needs no knowledge of routing.
 * No function keeps state: any thread may call any of them.
 */
#ifndef KVW_CONFIG_H
#define KVW_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "kvway/err.h"
#include "kvway/route.h"
#include "settings/types.h"

#define KVW_CONFIG_MAX_BYTES (1u << 20) /* of a file; a fleet of 1,024 workers needs a tenth */

/* Words of these in YAML: enums.def. */
enum kvw_half_close { KVW_HALF_CLOSE_ABORT, KVW_HALF_CLOSE_SERVE };
enum kvw_proxy_protocol { KVW_PROXY_PROTOCOL_OFF, KVW_PROXY_PROTOCOL_ACCEPT, KVW_PROXY_PROTOCOL_REQUIRE };
enum kvw_forwarded {
	KVW_FORWARDED_BOTH,
	KVW_FORWARDED_STANDARD, /* Forwarded, RFC 7239 */
	KVW_FORWARDED_X,        /* X-Forwarded-For and friends */
	KVW_FORWARDED_OFF
};
enum kvw_decision_headers {
	KVW_DECISION_HEADERS_OFF,
	KVW_DECISION_HEADERS_ON_REQUEST, /* the client sent x-kvway-explain: 1 */
	KVW_DECISION_HEADERS_ALWAYS
};
enum kvw_pd_transfer {
	KVW_PD_TRANSFER_NIXL,
	KVW_PD_TRANSFER_NIXL_PUSH,
	KVW_PD_TRANSFER_MOONCAKE,
	KVW_PD_TRANSFER_SHARED,
	KVW_PD_TRANSFER_SIDECAR,
	KVW_PD_TRANSFER_P2P,
	KVW_PD_TRANSFER_OFF
};
enum kvw_group_sticky { KVW_GROUP_STICKY_SESSION, KVW_GROUP_STICKY_REQUEST };
enum kvw_group_fallback { KVW_GROUP_FALLBACK_OTHERS, KVW_GROUP_FALLBACK_REFUSE };
enum kvw_tls_version { KVW_TLS_1_2, KVW_TLS_1_3 };
enum kvw_client_certificate { KVW_CLIENT_CERTIFICATE_REQUIRED, KVW_CLIENT_CERTIFICATE_ASKED };

/* C type of each type in keys.def. */
#define KVW_CTYPE_BOOL            bool
#define KVW_CTYPE_INT             int64_t
#define KVW_CTYPE_SIZE            uint64_t /* bytes */
#define KVW_CTYPE_DURATION        int64_t  /* milliseconds */
#define KVW_CTYPE_RATIO           double
#define KVW_CTYPE_STRING          char * /* never NULL; no control characters */
#define KVW_CTYPE_SECRET          char * /* visible ASCII; never printed */
#define KVW_CTYPE_ADDRESS         char * /* host:port or [v6]:port, see address.h */
#define KVW_CTYPE_URL             char * /* http[s]://host:port[/prefix], always with its port */
#define KVW_CTYPE_PATH            char * /* begins with '/', visible ASCII */
#define KVW_CTYPE_STRATEGY        char * /* name of a strategy that is built in */
#define KVW_CTYPE_STRINGS         struct kvw_strings /* none of them empty */
#define KVW_CTYPE_TOKENS          struct kvw_strings /* each an RFC 9110 token */
#define KVW_CTYPE_DIGEST          struct kvw_digest
#define KVW_CTYPE_DATE            int64_t /* seconds since 1970; 0: none */
#define KVW_CTYPE_ENUM_half_close enum kvw_half_close
#define KVW_CTYPE_ENUM_forwarded  enum kvw_forwarded
#define KVW_CTYPE_ENUM_decision_headers enum kvw_decision_headers
#define KVW_CTYPE_ENUM_tls_version enum kvw_tls_version
#define KVW_CTYPE_ENUM_client_certificate enum kvw_client_certificate
#define KVW_CTYPE_ENUM_proxy_protocol enum kvw_proxy_protocol
#define KVW_CTYPE_ENUM_group_sticky enum kvw_group_sticky
#define KVW_CTYPE_ENUM_group_fallback enum kvw_group_fallback
#define KVW_CTYPE_ENUM_pd_transfer enum kvw_pd_transfer
#define KVW_CTYPE_ENUM_role enum kvw_role /* kvway/route.h */
#define KVW_CTYPE_ENUM_log_level  int /* enum kvw_log_level of base/log.h */

/* One entry of `workers:`. */
struct kvw_worker_config {
#define KVW_WORKER_KEY(path, type, field, def, min, max, reload, text) KVW_CTYPE_##type field;
#include "config/keys.def"
};

/* One entry of `service_levels:`. It has a model, a class or both, and at least one duration. */
struct kvw_service_level {
#define KVW_LEVEL_KEY(path, type, field, def, min, max, reload, text) KVW_CTYPE_##type field;
#include "config/keys.def"
	size_t model_len;   /* 0: every model */
	size_t class_index; /* in admission_classes; KVW_EVERY_CLASS */
};

/* One entry of `discovery.kubernetes.pools`: it has a selector or a service. */
struct kvw_pool_config {
#define KVW_POOL_KEY(path, type, field, def, min, max, reload, text) KVW_CTYPE_##type field;
#include "config/keys.def"
};

#define KVW_MAX_POOLS 16

/* One entry of `rate_limits:`. It has a tenant or a model, the other text is empty, and at least one limit. A
 * number 0: not given. */
struct kvw_rate_limit {
#define KVW_RATE_KEY(path, type, field, def, min, max, reload, text) KVW_CTYPE_##type field;
#include "config/keys.def"
};

#define KVW_MAX_RATE_LIMITS 10000

/*
 * One entry of `model_groups`: a part of the workers that serve a model. All of a configuration stay as they
 * are but for weight_now, which the control thread may change while loops read it: the admin address does.
 */
struct kvw_model_group {
#define KVW_GROUP_KEY(path, type, field, def, min, max, reload, text) KVW_CTYPE_##type field;
#include "config/keys.def"
	const char *serves;     /* what its workers call the model: `to`, or `model` */
	uint64_t hash;          /* of its name: the same in every replica */
	uint64_t *worker_keys;  /* owned, [workers.count]: hashes of what `workers` names */
	_Atomic double *weight_now; /* owned; `weight`, unless changed since */
};

#define KVW_MAX_MODEL_GROUPS 64 /* of all models together */
#define KVW_GROUP_NAME_MOST  64 /* bytes */

/* The groups of one model. Borrowed from a configuration. */
struct kvw_model_groups {
	const struct kvw_model_group *items; /* by name */
	size_t count;                        /* 0: the model is not divided */
};

/* One entry of `models`: clients that ask for `name` get the model `target`. */
struct kvw_model_alias {
	char *name, *to;    /* owned; 1 to KVW_ALIAS_MOST bytes */
	size_t name_len;
	const char *target; /* what `to` leads to in the end; another entry's or this one's `to` */
};

#define KVW_MAX_ALIASES 256
#define KVW_ALIAS_MOST  256 /* bytes of a name */

/* A SHA-256. */
struct kvw_digest {
	unsigned char bytes[32];
};

/* One entry of the file `auth.keys_file`; src/router/auth reads it. A text or list that was not given is
 * NULL or empty. */
struct kvw_client_key {
#define KVW_CLIENT_KEY(path, type, field, def, min, max, reload, text) KVW_CTYPE_##type field;
#include "config/keys.def"
};

#define KVW_INHERITED          INT64_C(-1) /* a duration that an entry leaves out */
#define KVW_EVERY_CLASS        SIZE_MAX
#define KVW_MAX_SERVICE_LEVELS 64

/* The promise to a request, in milliseconds; 0: none. */
struct kvw_service_level_ms {
	int64_t ttft, ttft_per_1k_tokens, tpot;
};

struct kvw_config {
#define KVW_KEY(path, type, field, def, min, max, reload, text) KVW_CTYPE_##type field;
#include "config/keys.def"
	struct kvw_worker_config *workers; /* in the order of the file, no URL twice */
	size_t worker_count;               /* at most KVW_MAX_WORKERS (kvway/route.h) */
	struct kvw_service_level *service_levels; /* in the order of the file, no model and class twice */
	size_t service_level_count;               /* at most KVW_MAX_SERVICE_LEVELS */
	struct kvw_pool_config *pools;            /* of discovery.kubernetes, no name twice */
	size_t pool_count;                        /* at most KVW_MAX_POOLS */
	struct kvw_rate_limit *rate_limits;       /* by tenant and model, none twice */
	size_t rate_limit_count;                  /* at most KVW_MAX_RATE_LIMITS */
	struct kvw_model_alias *model_aliases;    /* in the order of the file, no name twice */
	size_t model_alias_count;                 /* at most KVW_MAX_ALIASES */
	struct kvw_model_group *model_groups;     /* by model and name, none twice */
	size_t model_group_count;                 /* at most KVW_MAX_MODEL_GROUPS */
	/* Own settings of all strategies, one after another; kvw_config_own. */
	union kvw_setting_value own[KVW_OWN_KEYS_MOST];
};

/* One flag of production-stack's router; see stack_flags.h. */
struct kvw_stack_given {
	size_t flag;       /* index in kvw_stack_flags */
	const char *value; /* NULL: it takes none */
};

/* Values of the program's flags; NULL: not given, the key's default holds. Borrowed. */
struct kvw_config_flags {
	const char *listen;         /* --listen */
	const char *const *workers; /* --worker, once for each */
	size_t worker_count;
	const char *strategy;   /* --strategy */
	const char *admin;      /* --admin */
	const char *access_log; /* --access-log */
	const char *log_level;  /* --log-level */
	const struct kvw_stack_given *stack; /* each flag at most once */
	size_t stack_count;
};

/* Reads a YAML file. */
enum kvw_err kvw_config_load(const char *path, const struct kvw_strategy_ops *const *strategies, FILE *errors,
	struct kvw_config **out) KVW_MUST_CHECK;

/* The same from memory; `name` stands where the file's path would. */
enum kvw_err kvw_config_parse(const char *name, const char *text, size_t len,
	const struct kvw_strategy_ops *const *strategies, FILE *errors, struct kvw_config **out) KVW_MUST_CHECK;

/* Defaults and flags, no file. Mistakes name the flag: `--listen: found ..., expected ...`. */
enum kvw_err kvw_config_from_flags(const struct kvw_config_flags *flags,
	const struct kvw_strategy_ops *const *strategies, FILE *errors, struct kvw_config **out) KVW_MUST_CHECK;

/* Values of a strategy's own settings, for kvw_strategy_options. `strategies` as when it was loaded;
 * `ops` is one of them. Borrowed from the configuration. */
const union kvw_setting_value *kvw_config_own(const struct kvw_config *config,
	const struct kvw_strategy_ops *const *strategies, const struct kvw_strategy_ops *ops);

/* Index in admission_classes of the class that a request names (len 0: none), else of
 * admission.default_class, else of the last; 0 where there are none. */
size_t kvw_config_class(const struct kvw_config *config, struct kvw_slice name);

/*
 * Finds the promise to a request for this model (as the request names it; may be empty) in this class (index in
 * admission_classes, 0 where there are none). Each duration is that of the entry for model and class, else of the one
 * for the model, else for the class, else `service_level`'s. One pass over the entries that compares lengths first and
 * allocates nothing: fit for every request.
 */
void kvw_config_promise(const struct kvw_config *config, const char *model, size_t model_len,
	size_t class_index, struct kvw_service_level_ms *out);

/* The entry of `rate_limits` for a tenant, for a model; NULL: there is none. */
const struct kvw_rate_limit *kvw_config_tenant_rate(
	const struct kvw_config *config, struct kvw_slice tenant);
const struct kvw_rate_limit *kvw_config_model_rate(const struct kvw_config *config, struct kvw_slice model);
/* The one that holds for requests of this name: the model's; where there is none, and the name is a group's own for a
 * model, which clients may use as well, that model's. */
const struct kvw_rate_limit *kvw_config_served_rate(const struct kvw_config *config, struct kvw_slice name);
bool kvw_config_limits_models(const struct kvw_config *config); /* any */

/* The entry of `models` of this name; NULL: it is no alias. */
const struct kvw_model_alias *kvw_config_alias(const struct kvw_config *config, struct kvw_slice model);

/* The groups of a model, as clients name it. */
struct kvw_model_groups kvw_config_groups(const struct kvw_config *config, struct kvw_slice model);

/* Whether a worker of this URL and with this `group` belongs to the group: by kvw_group_key of both. */
bool kvw_group_has(const struct kvw_model_group *group, uint64_t label_key, uint64_t url_key);
/* Hash of a worker's `group` or URL; 0: of an empty one. */
uint64_t kvw_group_key(const char *text);

/* One entry of `workers` by itself: a copy, to be released. */
enum kvw_err kvw_worker_config_copy(
	const struct kvw_worker_config *from, struct kvw_worker_config *to) KVW_MUST_CHECK;
bool kvw_worker_config_equal(
	const struct kvw_worker_config *a, const struct kvw_worker_config *b);
/* Frees its texts and zeroes it; zeroed is allowed. */
void kvw_worker_config_release(struct kvw_worker_config *worker);

/* NULL is allowed. */
void kvw_config_destroy(struct kvw_config *config);

#endif
