/*
 * rate_limits.h - the list `rate_limits`: how much tenants and models may use.
 *
 * Entries are checked while they are read, except whether the model is an alias, since the aliases
 * may come later in the file. Pure functions, except the one that walks the document.
 */
#ifndef KVW_CONFIG_RATE_LIMITS_H
#define KVW_CONFIG_RATE_LIMITS_H

#include "config/build.h"

/* Called by the walk of a build for the name `rate_limits`. KVW_ENOMEM or KVW_OK. */
enum kvw_err kvw_rate_limits_walk(struct kvw_walk *walk, const struct kvw_node *list) KVW_MUST_CHECK;

/* Returns whether the entry has this key, an enum kvw_rate_key_index. */
bool kvw_rate_limit_has(const struct kvw_rate_limit *limit, size_t key);

/* Returns whether two complete lists have the same entries, in any order. */
bool kvw_rate_limits_same(const struct kvw_config *a, const struct kvw_config *b);

/* Writes the list on one line of YAML on the heap, which belongs to the caller. KVW_ENOMEM. */
enum kvw_err kvw_rate_limits_text(const struct kvw_config *config, char **out) KVW_MUST_CHECK;

/* Frees the list. */
void kvw_rate_limits_release(struct kvw_config *config);

#endif
