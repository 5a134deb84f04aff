/*
 * rate_limits.h - the list `rate_limits`: how much tenants and models may use.
 *
 * What an entry says is checked while it is read, but whether its model is an alias: that hangs on the rest of the
 * file. Pure functions but for the walk.
 */
#ifndef KVW_CONFIG_RATE_LIMITS_H
#define KVW_CONFIG_RATE_LIMITS_H

#include "config/build.h"

/* Hook of the walk, which is that of a build, for the name `rate_limits`. KVW_ENOMEM or KVW_OK. */
enum kvw_err kvw_rate_limits_walk(struct kvw_walk *walk, const struct kvw_node *list) KVW_MUST_CHECK;

/* Whether the entry says something by this key: enum kvw_rate_key_index. */
bool kvw_rate_limit_has(const struct kvw_rate_limit *limit, size_t key);

/* Whether two whole lists say the same, in whatever order. */
bool kvw_rate_limits_same(const struct kvw_config *a, const struct kvw_config *b);

/* The list on one line of YAML, on the heap; the caller's. KVW_ENOMEM. */
enum kvw_err kvw_rate_limits_text(const struct kvw_config *config, char **out) KVW_MUST_CHECK;

/* Frees the list. */
void kvw_rate_limits_release(struct kvw_config *config);

#endif
