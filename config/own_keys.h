/*
 * own_keys.h - keys for the settings of strategies, and the complete schema that has them.
 *
 * keys.def has the router's keys. A setting that only one strategy reads is in that strategy's
 * table (`settings` in kvway/route.h), and becomes the key routing.NAME.SETTING. The indexes of
 * these keys follow those of keys.def: the first is KVW_KEY_COUNT. Their sections come after the
 * last one below `routing`. Nothing here is on the heap. Pure functions of the list of strategies.
 */
#ifndef KVW_CONFIG_OWN_KEYS_H
#define KVW_CONFIG_OWN_KEYS_H

#include "config/schema.h"
#include "kvway/route.h"

#define KVW_OWN_SECTION_PARENT "routing" /* under which they stand */
#define KVW_ROUTING_SPEC       "intelligentRoutingSpec" /* see routing_spec.h */
#define KVW_SERVICE_LEVELS     "service_levels"         /* see service_levels.h */
#define KVW_RATE_LIMITS        "rate_limits"            /* see rate_limits.h */
#define KVW_MODELS             "models"                 /* see model_aliases.h */
#define KVW_MODEL_GROUPS       "model_groups"           /* see model_groups.h */
#define KVW_POOLS              "discovery.kubernetes.pools" /* see pools.h */
#define KVW_ALL_KEYS           (KVW_KEY_COUNT + KVW_OWN_KEYS_MOST)
#define KVW_ALL_SECTIONS       (KVW_SECTION_COUNT + KVW_STRATEGIES_MOST)

struct kvw_own_keys {
	struct kvw_schema schema; /* the complete schema, which refers to the members below */
	const char *names[KVW_STRATEGIES_MOST + 1]; /* names of the strategies, ended by NULL */
	struct kvw_key keys[KVW_ALL_KEYS];
	size_t key_count; /* number of keys in addition to those of keys.def */
	struct kvw_section sections[KVW_ALL_SECTIONS];
	size_t section_count; /* likewise */
	char paths[KVW_OWN_KEYS_MOST + KVW_STRATEGIES_MOST][KVW_SCHEMA_MAX_PATH];
	size_t path_count;
};

/* *own must not be moved afterwards: it has pointers to itself. */
void kvw_own_keys_init(struct kvw_own_keys *own, const struct kvw_strategy_ops *const *strategies);

/* Returns a key by its index, which is below the numbers of keys in keys.def and *own together. */
static inline const struct kvw_key *kvw_own_key(const struct kvw_own_keys *own, size_t index)
{
	return &own->keys[index];
}

/* Returns the index of the key with this full path; the number of all keys if there is none. */
static inline size_t kvw_own_find_key(const struct kvw_own_keys *own, const char *path)
{
	return kvw_schema_find_key(&own->schema, path);
}

static inline size_t kvw_own_find_section(const struct kvw_own_keys *own, const char *path)
{
	return kvw_schema_find_section(&own->schema, path);
}

#endif
