/*
 * service_levels.h - the list `service_levels`: promises for single models and classes.
 *
 * The walk reads the entries; kvw_rules_check_admission checks them when the whole file was read,
 * since the classes may come later in the file. kvw_config_promise (config.h) finds the entry for a
 * request. Pure functions, except the one that walks the document.
 */
#ifndef KVW_CONFIG_SERVICE_LEVELS_H
#define KVW_CONFIG_SERVICE_LEVELS_H

#include "config/build.h"

/* Called by the walk of a build for the name `service_levels`. KVW_ENOMEM or KVW_OK. */
enum kvw_err kvw_service_levels_walk(
	struct kvw_walk *walk, const struct kvw_node *list) KVW_MUST_CHECK;

/* Returns whether the entry has this key, an enum kvw_level_key_index. */
bool kvw_service_level_has(const struct kvw_service_level *level, size_t key);

/* Returns whether two complete lists promise the same, in any order. */
bool kvw_service_levels_same(const struct kvw_config *a, const struct kvw_config *b);

/* Writes the list on one line of YAML on the heap, which belongs to the caller. KVW_ENOMEM. */
enum kvw_err kvw_service_levels_text(const struct kvw_config *config, char **out) KVW_MUST_CHECK;

/* Frees the list. */
void kvw_service_levels_release(struct kvw_config *config);

#endif
