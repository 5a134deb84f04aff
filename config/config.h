/*
 * config.h - the configuration as the program reads it.
 *
 * Every member comes from config/keys.def. The loader sets all of them, so that no reader needs to
 * know whether a key was given. A loaded configuration does not change, and belongs to the caller.
 *
 * Each function that makes one writes every mistake that it finds to `errors`, a line each:
 *
 *     FILE:LINE:COLUMN: KEY: found ..., expected ...; did you mean `x`?
 *
 * and returns KVW_EINVAL (at least one mistake), KVW_EIO (the file cannot be read; also written) or
 * KVW_ENOMEM (the caller reports it). *out is set only on KVW_OK. Lines and columns count from 1,
 * columns in characters. `strategies` is the list of all strategies that routing.strategy may name,
 * ended by NULL; the functions read their names and settings during the call only, so this folder
 * does not depend on routing. No function keeps state: any thread may call any of them.
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

/* most bytes of a file; one with 1,024 workers has a tenth of that */
#define KVW_CONFIG_MAX_BYTES (1u << 20)

/* The words of these enums in YAML are in enums.def. */
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
	KVW_DECISION_HEADERS_ON_REQUEST, /* only for requests with x-kvway-explain: 1 */
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
enum kvw_otlp_protocol { KVW_OTLP_PROTOBUF, KVW_OTLP_JSON };
enum kvw_otlp_compression { KVW_OTLP_PLAIN, KVW_OTLP_GZIP };
enum kvw_tls_version { KVW_TLS_1_2, KVW_TLS_1_3 };
enum kvw_client_certificate { KVW_CLIENT_CERTIFICATE_REQUIRED, KVW_CLIENT_CERTIFICATE_ASKED };

/* The C type of each type in keys.def. */
#define KVW_CTYPE_BOOL            bool
#define KVW_CTYPE_INT             int64_t
#define KVW_CTYPE_SIZE            uint64_t /* bytes */
#define KVW_CTYPE_DURATION        int64_t  /* milliseconds */
#define KVW_CTYPE_RATIO           double
#define KVW_CTYPE_STRING          char * /* never NULL; has no control characters */
#define KVW_CTYPE_SECRET          char * /* visible ASCII; never printed */
#define KVW_CTYPE_ADDRESS         char * /* host:port or [v6]:port, see address.h */
/* http[s]://host:port[/prefix], where the port is always written */
#define KVW_CTYPE_URL             char *
#define KVW_CTYPE_PATH            char * /* begins with '/', visible ASCII */
#define KVW_CTYPE_STRATEGY        char * /* name of a strategy in this program */
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
#define KVW_CTYPE_ENUM_otlp_protocol enum kvw_otlp_protocol
#define KVW_CTYPE_ENUM_otlp_compression enum kvw_otlp_compression
#define KVW_CTYPE_ENUM_group_sticky enum kvw_group_sticky
#define KVW_CTYPE_ENUM_group_fallback enum kvw_group_fallback
#define KVW_CTYPE_ENUM_pd_transfer enum kvw_pd_transfer
#define KVW_CTYPE_ENUM_role enum kvw_role /* kvway/route.h */
#define KVW_CTYPE_ENUM_log_level  int /* enum kvw_log_level in base/log.h */

/* One entry of `workers:`. */
struct kvw_worker_config {
#define KVW_WORKER_KEY(path, type, field, def, min, max, reload, text) KVW_CTYPE_##type field;
#include "config/keys.def"
};

/* An entry of `service_levels`. It has a model, a class or both, and at least one duration. */
struct kvw_service_level {
#define KVW_LEVEL_KEY(path, type, field, def, min, max, reload, text) KVW_CTYPE_##type field;
#include "config/keys.def"
	size_t model_len;   /* 0: every model */
	/* index in admission_classes; KVW_EVERY_CLASS: the entry names no class */
	size_t class_index;
};

/* An entry of `discovery.kubernetes.pools`, with a selector or a service. */
struct kvw_pool_config {
#define KVW_POOL_KEY(path, type, field, def, min, max, reload, text) KVW_CTYPE_##type field;
#include "config/keys.def"
};

#define KVW_MAX_POOLS 16

/* An entry of `rate_limits`, with a tenant or a model (the other text is empty) and at least one
 * limit. A limit of 0 was not given. */
struct kvw_rate_limit {
#define KVW_RATE_KEY(path, type, field, def, min, max, reload, text) KVW_CTYPE_##type field;
#include "config/keys.def"
};

#define KVW_MAX_RATE_LIMITS 10000

/*
 * An entry of `model_groups`: a part of the workers of a model. Its members do not change, except
 * weight_now, which the admin address may set on the control thread while loops read it.
 */
struct kvw_model_group {
#define KVW_GROUP_KEY(path, type, field, def, min, max, reload, text) KVW_CTYPE_##type field;
#include "config/keys.def"
	const char *serves;     /* name of the model at the group's workers: `to`, or `model` */
	uint64_t hash;          /* hash of the group's name: the same in every replica */
	uint64_t *worker_keys;  /* owned; workers.count hashes of the entries of `workers` */
	_Atomic double *weight_now; /* owned; `weight`, unless it was changed at runtime */
};

#define KVW_MAX_MODEL_GROUPS 64 /* most groups of all models */
#define KVW_GROUP_NAME_MOST  64 /* bytes */

/* The groups of one model. Borrowed from a configuration. */
struct kvw_model_groups {
	const struct kvw_model_group *items; /* ordered by name */
	size_t count;                        /* 0: the model has no groups */
};

/* An entry of `models`: requests for the model `name` are for the model `target`. */
struct kvw_model_alias {
	char *name, *to;    /* owned; 1 to KVW_ALIAS_MOST bytes long */
	size_t name_len;
	/* the model at the end of a chain of aliases; points to the `to` of this entry or of
	 * another one */
	const char *target;
};

#define KVW_MAX_ALIASES 256
#define KVW_ALIAS_MOST  256 /* bytes of a name */

/* A SHA-256. */
struct kvw_digest {
	unsigned char bytes[32];
};

/* An entry of the file `auth.keys_file`, which src/router/auth reads. A text or list that was not
 * given is NULL or empty. */
struct kvw_client_key {
#define KVW_CLIENT_KEY(path, type, field, def, min, max, reload, text) KVW_CTYPE_##type field;
#include "config/keys.def"
};

#define KVW_INHERITED          INT64_C(-1) /* the value of a duration that an entry does not have */
#define KVW_EVERY_CLASS        SIZE_MAX
#define KVW_MAX_SERVICE_LEVELS 64

/* The durations promised to a request, in milliseconds; 0: none. */
struct kvw_service_level_ms {
	int64_t ttft, ttft_per_1k_tokens, tpot;
};

struct kvw_config {
#define KVW_KEY(path, type, field, def, min, max, reload, text) KVW_CTYPE_##type field;
#include "config/keys.def"
	struct kvw_worker_config *workers; /* in the order of the file; no two have the same URL */
	size_t worker_count;               /* at most KVW_MAX_WORKERS (kvway/route.h) */
	/* in the order of the file; no two have the same model and class */
	struct kvw_service_level *service_levels;
	size_t service_level_count;               /* at most KVW_MAX_SERVICE_LEVELS */
	/* those of discovery.kubernetes; no two have the same name */
	struct kvw_pool_config *pools;
	size_t pool_count;                        /* at most KVW_MAX_POOLS */
	struct kvw_rate_limit *rate_limits; /* ordered by tenant and model; no two have the same */
	size_t rate_limit_count;                  /* at most KVW_MAX_RATE_LIMITS */
	/* in the order of the file; no two have the same name */
	struct kvw_model_alias *model_aliases;
	size_t model_alias_count;                 /* at most KVW_MAX_ALIASES */
	struct kvw_model_group *model_groups; /* ordered by model and name; no two have the same */
	size_t model_group_count;                 /* at most KVW_MAX_MODEL_GROUPS */
	/* Values of the settings that strategies have, one strategy after another; see
	 * kvw_config_own. */
	union kvw_setting_value own[KVW_OWN_KEYS_MOST];
};

/* A flag of production-stack's router that was given; see stack_flags.h. */
struct kvw_stack_given {
	size_t flag;       /* index of the flag in kvw_stack_flags */
	const char *value; /* NULL: it takes none */
};

/* Values of the program's flags. NULL: not given, so the key has its default. Borrowed. */
struct kvw_config_flags {
	const char *listen;         /* --listen */
	const char *const *workers; /* --worker, once for each */
	size_t worker_count;
	const char *strategy;   /* --strategy */
	const char *admin;      /* --admin */
	const char *access_log; /* --access-log */
	const char *log_level;  /* --log-level */
	const struct kvw_stack_given *stack; /* each flag is there once at most */
	size_t stack_count;
};

/* Reads a YAML file. */
enum kvw_err kvw_config_load(const char *path, const struct kvw_strategy_ops *const *strategies, FILE *errors,
	struct kvw_config **out) KVW_MUST_CHECK;

/* Does the same for a text in memory; in mistakes, `name` is used in place of the file's path. */
enum kvw_err kvw_config_parse(const char *name, const char *text, size_t len,
	const struct kvw_strategy_ops *const *strategies, FILE *errors, struct kvw_config **out) KVW_MUST_CHECK;

/* Makes a configuration from flags and defaults, without a file. Mistakes name the flag: `--listen:
 * found ..., expected ...`. */
enum kvw_err kvw_config_from_flags(const struct kvw_config_flags *flags,
	const struct kvw_strategy_ops *const *strategies, FILE *errors, struct kvw_config **out) KVW_MUST_CHECK;

/* Returns the values of a strategy's settings, for kvw_strategy_options. `strategies` must be the
 * list with which the configuration was loaded, and `ops` one of them. Borrowed from the
 * configuration. */
const union kvw_setting_value *kvw_config_own(const struct kvw_config *config,
	const struct kvw_strategy_ops *const *strategies, const struct kvw_strategy_ops *ops);

/* Returns the index in admission_classes of the class that a request names. If it names none (len
 * 0), or an unknown one, that is the class of admission.default_class, or else the last one; 0 if
 * there are no classes. */
size_t kvw_config_class(const struct kvw_config *config, struct kvw_slice name);

/*
 * Finds the durations promised to a request for this model (as the request names it; may be empty)
 * in this class (index in admission_classes; 0 if there are none). Each duration is taken from the
 * entry for both model and class, else for the model, else for the class, else from
 * `service_level`. One pass over the entries compares lengths first and allocates nothing, so it is
 * cheap enough for every request.
 */
void kvw_config_promise(const struct kvw_config *config, const char *model, size_t model_len,
	size_t class_index, struct kvw_service_level_ms *out);

/* Return the entry of `rate_limits` for a tenant, and for a model; NULL: there is none. */
const struct kvw_rate_limit *kvw_config_tenant_rate(
	const struct kvw_config *config, struct kvw_slice tenant);
const struct kvw_rate_limit *kvw_config_model_rate(const struct kvw_config *config, struct kvw_slice model);
/* Returns the entry for requests with this model name: the one for the name itself; else, if a
 * group uses this name for a model (clients may use it as well), the one for that model. */
const struct kvw_rate_limit *kvw_config_served_rate(const struct kvw_config *config, struct kvw_slice name);
bool kvw_config_limits_models(const struct kvw_config *config); /* any */

/* Returns the entry of `models` with this name; NULL: the name is no alias. */
const struct kvw_model_alias *kvw_config_alias(const struct kvw_config *config, struct kvw_slice model);

/* Returns the groups of a model, by the name that clients use. */
struct kvw_model_groups kvw_config_groups(const struct kvw_config *config, struct kvw_slice model);

/* Returns whether a worker with this URL and this `group` belongs to the group; both are given as
 * keys by kvw_group_key. */
bool kvw_group_has(const struct kvw_model_group *group, uint64_t label_key, uint64_t url_key);
/* Returns the key of a worker's `group` or URL, which is a hash; 0 for an empty text. */
uint64_t kvw_group_key(const char *text);

/* Returns whether a text is a URL to which spans can be sent: http or https, and a host. */
bool kvw_config_is_collector(const char *url);

/* Copies an entry of `workers`; the copy must be released. */
enum kvw_err kvw_worker_config_copy(
	const struct kvw_worker_config *from, struct kvw_worker_config *to) KVW_MUST_CHECK;
bool kvw_worker_config_equal(
	const struct kvw_worker_config *a, const struct kvw_worker_config *b);
/* Frees the worker's texts and zeroes it; the worker may be all zeroes. */
void kvw_worker_config_release(struct kvw_worker_config *worker);

/* NULL is allowed. */
void kvw_config_destroy(struct kvw_config *config);

#endif
