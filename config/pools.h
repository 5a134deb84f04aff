/*
 * pools.h - the list `discovery.kubernetes.pools`.
 *
 * The walk reads the entries; kvw_rules_check_pools checks them when the whole file was read. Pure
 * functions, except the one that walks the document.
 */
#ifndef KVW_CONFIG_POOLS_H
#define KVW_CONFIG_POOLS_H

#include "config/build.h"

#define KVW_POOL_SHOWN 128

/* Called by the walk of a build for this list. KVW_ENOMEM or KVW_OK. */
enum kvw_err kvw_pools_walk(struct kvw_walk *walk, const struct kvw_node *list) KVW_MUST_CHECK;

/* Returns whether the pool has another value than the default for this key, an enum
 * kvw_pool_key_index. */
bool kvw_pool_has(const struct kvw_pool_config *pool, size_t key);

/* Writes the pool's name for logs and metrics: its name, or else its Service, or else its number.
 * The pool must be complete. */
void kvw_pool_shown(const struct kvw_config *config, size_t index, char out[KVW_POOL_SHOWN]);

/* Returns whether two lists have the same entries in the same order. */
bool kvw_pools_same(const struct kvw_config *a, const struct kvw_config *b);

/* Replaces the list of `to` by a copy of that of `from`. KVW_ENOMEM: `to` has no pools. */
enum kvw_err kvw_pools_copy(const struct kvw_config *from, struct kvw_config *to) KVW_MUST_CHECK;

/* Writes the list on one line of YAML on the heap, which belongs to the caller. KVW_ENOMEM. */
enum kvw_err kvw_pools_text(const struct kvw_config *config, char **out) KVW_MUST_CHECK;

/* Frees the list; the configuration has no pools then. */
void kvw_pools_release(struct kvw_config *config);

#endif
