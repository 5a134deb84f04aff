/*
 * pools.h - the list `discovery.kubernetes.pools`.
 *
 * The walk takes the entries as they stand; kvw_rules_check_pools looks at what they say when all was
 * read. Pure functions but for the walk.
 */
#ifndef KVW_CONFIG_POOLS_H
#define KVW_CONFIG_POOLS_H

#include "config/build.h"

#define KVW_POOL_SHOWN 128

/* Hook of the walk, which is that of a build, for this list. KVW_ENOMEM or KVW_OK. */
enum kvw_err kvw_pools_walk(struct kvw_walk *walk, const struct kvw_node *list) KVW_MUST_CHECK;

/* Whether the pool says something else by this key (enum kvw_pool_key_index) than its default. */
bool kvw_pool_has(const struct kvw_pool_config *pool, size_t key);

/* The pool's name in logs and metrics: its name, or else its Service, or else its number. The pool is complete. */
void kvw_pool_shown(const struct kvw_config *config, size_t index, char out[KVW_POOL_SHOWN]);

/* Whether two lists have the same entries in the same order. */
bool kvw_pools_same(const struct kvw_config *a, const struct kvw_config *b);

/* Replaces the list of `to` by a copy of that of `from`. KVW_ENOMEM: `to` has none. */
enum kvw_err kvw_pools_copy(const struct kvw_config *from, struct kvw_config *to) KVW_MUST_CHECK;

/* The list on one line of YAML, on the heap; the caller's. KVW_ENOMEM. */
enum kvw_err kvw_pools_text(const struct kvw_config *config, char **out) KVW_MUST_CHECK;

/* Frees the list; the configuration has none then. */
void kvw_pools_release(struct kvw_config *config);

#endif
