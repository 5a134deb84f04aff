/*
 * schema.c - the tables of keys, made from keys.def.
 */
#include "config/schema.h"

#define RELOAD  true
#define RESTART false

const struct kvw_key kvw_keys[KVW_KEY_COUNT] = {
#define KVW_KEY(path, type, field, def, min, max, reload, text)                                    \
	{path, &kvw_type_##type, offsetof(struct kvw_config, field), def, min, max, text, "",      \
		reload},
#include "config/keys.def"
};

const struct kvw_key kvw_worker_keys[KVW_WORKER_KEY_COUNT] = {
#define KVW_WORKER_KEY(path, type, field, def, min, max, reload, text)                             \
	{path, &kvw_type_##type, offsetof(struct kvw_worker_config, field), def, min, max, text,   \
		"", reload},
#include "config/keys.def"
};

const struct kvw_key kvw_level_keys[KVW_LEVEL_KEY_COUNT] = {
#define KVW_LEVEL_KEY(path, type, field, def, min, max, reload, text)                              \
	{path, &kvw_type_##type, offsetof(struct kvw_service_level, field), def, min, max, text,   \
		"", reload},
#include "config/keys.def"
};

const struct kvw_key kvw_pool_keys[KVW_POOL_KEY_COUNT] = {
#define KVW_POOL_KEY(path, type, field, def, min, max, reload, text)                               \
	{path, &kvw_type_##type, offsetof(struct kvw_pool_config, field), def, min, max, text, "", \
		reload},
#include "config/keys.def"
};

const struct kvw_key kvw_rate_keys[KVW_RATE_KEY_COUNT] = {
#define KVW_RATE_KEY(path, type, field, def, min, max, reload, text)                               \
	{path, &kvw_type_##type, offsetof(struct kvw_rate_limit, field), def, min, max, text, "",  \
		reload},
#include "config/keys.def"
};

const struct kvw_key kvw_group_keys[KVW_GROUP_KEY_COUNT] = {
#define KVW_GROUP_KEY(path, type, field, def, min, max, reload, text)                              \
	{path, &kvw_type_##type, offsetof(struct kvw_model_group, field), def, min, max, text, "", \
		reload},
#include "config/keys.def"
};

const struct kvw_key kvw_client_keys[KVW_CLIENT_KEY_COUNT] = {
#define KVW_CLIENT_KEY(path, type, field, def, min, max, reload, text)                             \
	{path, &kvw_type_##type, offsetof(struct kvw_client_key, field), def, min, max, text, "",  \
		reload},
#include "config/keys.def"
};

const struct kvw_section kvw_sections[KVW_SECTION_COUNT] = {
#define KVW_SECTION(name, path, text) {path, text},
#include "config/keys.def"
};

const char *const kvw_renamed_keys[] = {
#define KVW_RENAMED(old, path) old, path,
#define KVW_REMOVED(path)      path, "",
#include "config/keys.def"
	NULL,
};

const struct kvw_schema kvw_worker_schema = {
	.keys = kvw_worker_keys,
	.key_count = KVW_WORKER_KEY_COUNT,
	.one_of = "one of url, models, api_key",
	.such_as = "- url: http://127.0.0.1:8000",
};

const struct kvw_schema kvw_level_schema = {
	.keys = kvw_level_keys,
	.key_count = KVW_LEVEL_KEY_COUNT,
	.one_of = "one of model, class, ttft, ttft_per_1k_tokens, tpot",
	.such_as = "- {model: NAME, ttft: 2s}",
};

const struct kvw_schema kvw_pool_schema = {
	.keys = kvw_pool_keys,
	.key_count = KVW_POOL_KEY_COUNT,
	.one_of = "one of name, selector, service, namespace, port, tls, models, models_from, "
		  "weight_from, group, scale, api_key",
	.such_as = "- {selector: app=vllm, port: 8000}",
};

const struct kvw_schema kvw_rate_schema = {
	.keys = kvw_rate_keys,
	.key_count = KVW_RATE_KEY_COUNT,
	.one_of = "one of tenant, model, requests_per_minute, tokens_per_minute, tokens_per_day, concurrent, "
		  "burst",
	.such_as = "- {tenant: NAME, requests_per_minute: 600}",
};

const struct kvw_schema kvw_group_schema = {
	.keys = kvw_group_keys,
	.key_count = KVW_GROUP_KEY_COUNT,
	.one_of = "one of model, group, weight, workers, shadow, to",
	.such_as = "- {model: NAME, group: canary, weight: 10, workers: [canary]}",
};

const struct kvw_schema kvw_client_key_schema = {
	.keys = kvw_client_keys,
	.key_count = KVW_CLIENT_KEY_COUNT,
	.one_of = "one of name, sha256, tenant, class, trusted, models, paths, expires, requests_per_minute, "
		  "tokens_per_minute, tokens_per_day, concurrent, burst, max_body, timeout",
	.such_as = "- {name: NAME, sha256: HASH}",
};
