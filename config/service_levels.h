/*
 * service_levels.h - the list `service_levels`: promises for single models and classes.
 *
 * The walk takes the entries as they stand; kvw_rules_check_admission looks at what they say when all
 * was read, since the classes may come later in the file. kvw_config_promise (config.h) answers from
 * the result. Pure functions but for the walk.
 */
#ifndef KVW_CONFIG_SERVICE_LEVELS_H
#define KVW_CONFIG_SERVICE_LEVELS_H

#include "config/build.h"

/* Hook of the walk, which is that of a build, for the name `service_levels`. KVW_ENOMEM or KVW_OK. */
enum kvw_err kvw_service_levels_walk(
	struct kvw_walk *walk, const struct kvw_node *list) KVW_MUST_CHECK;

/* Whether the entry says something by this key: enum kvw_level_key_index. */
bool kvw_service_level_has(const struct kvw_service_level *level, size_t key);

/* Whether two whole lists promise the same, in whatever order. */
bool kvw_service_levels_same(const struct kvw_config *a, const struct kvw_config *b);

/* The list on one line of YAML, on the heap; the caller's. KVW_ENOMEM. */
enum kvw_err kvw_service_levels_text(const struct kvw_config *config, char **out) KVW_MUST_CHECK;

/* Frees the list. */
void kvw_service_levels_release(struct kvw_config *config);

#endif
