/*
 * own_keys.h - keys of the settings that strategies have of their own, and with them the whole schema.
 *
 * keys.def has the router's keys; what a strategy alone reads is in its table (`settings` in
 * kvway/route.h) and becomes the key routing.NAME.SETTING. Indexes of keys go on behind those of
 * keys.def: the first own key is KVW_KEY_COUNT. Sections stand after the last one below `routing`.
 * Nothing here is on the heap. Pure functions of the list of strategies.
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
	struct kvw_schema schema;                   /* all of them: of what follows */
	const char *names[KVW_STRATEGIES_MOST + 1]; /* of the strategies, NULL-terminated */
	struct kvw_key keys[KVW_ALL_KEYS];
	size_t key_count; /* beyond those of keys.def */
	struct kvw_section sections[KVW_ALL_SECTIONS];
	size_t section_count; /* likewise */
	char paths[KVW_OWN_KEYS_MOST + KVW_STRATEGIES_MOST][KVW_SCHEMA_MAX_PATH];
	size_t path_count;
};

/* Pointers in *own go to *own itself: it must not be moved. */
void kvw_own_keys_init(struct kvw_own_keys *own, const struct kvw_strategy_ops *const *strategies);

/* By index, below the counts of keys.def and of *own together. */
static inline const struct kvw_key *kvw_own_key(const struct kvw_own_keys *own, size_t index)
{
	return &own->keys[index];
}

/* Index by full path, or those counts if there is none. */
static inline size_t kvw_own_find_key(const struct kvw_own_keys *own, const char *path)
{
	return kvw_schema_find_key(&own->schema, path);
}

static inline size_t kvw_own_find_section(const struct kvw_own_keys *own, const char *path)
{
	return kvw_schema_find_section(&own->schema, path);
}

#endif
