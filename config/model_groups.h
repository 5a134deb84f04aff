/*
 * model_groups.h - the list `model_groups`: which workers of a model share its requests, and how.
 *
 * Entries are checked while they are read; groups of one model against each other, and models
 * against `models`, when the whole file was read. Pure functions, except the one that walks the
 * document.
 */
#ifndef KVW_CONFIG_MODEL_GROUPS_H
#define KVW_CONFIG_MODEL_GROUPS_H

#include "config/build.h"

/* Called by the walk of a build for the name `model_groups`. KVW_ENOMEM or KVW_OK. */
enum kvw_err kvw_model_groups_walk(struct kvw_walk *walk, const struct kvw_node *list) KVW_MUST_CHECK;

/* To be called after kvw_model_aliases_resolve. Checks that no model is an alias, that no two
 * groups of a model have a worker in common, and that some group gets requests. */
void kvw_model_groups_check(struct kvw_build *build);

/* Returns whether the entry has this key, an enum kvw_group_key_index. */
bool kvw_model_group_has(const struct kvw_model_group *group, size_t key);

/* Returns whether two complete lists have the same entries, in any order. */
bool kvw_model_groups_same(const struct kvw_config *a, const struct kvw_config *b);

/* Writes the list on one line of YAML on the heap, which belongs to the caller. KVW_ENOMEM. */
enum kvw_err kvw_model_groups_text(const struct kvw_config *config, char **out) KVW_MUST_CHECK;

/* To be called for a reload: keeps weights that were changed at runtime, for those models for which
 * both files have the same groups with the same weights. */
void kvw_model_groups_keep(const struct kvw_config *before, const struct kvw_config *after);

/* Frees the list. */
void kvw_model_groups_release(struct kvw_config *config);

#endif
