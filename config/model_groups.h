/*
 * model_groups.h - the list `model_groups`: which workers of a model share its requests, and how.
 *
 * Entries are checked while they are read; groups of one model against each other, and models against `models`,
 * once all was read. Pure functions but for the walk.
 */
#ifndef KVW_CONFIG_MODEL_GROUPS_H
#define KVW_CONFIG_MODEL_GROUPS_H

#include "config/build.h"

/* Hook of the walk, which is that of a build, for the name `model_groups`. KVW_ENOMEM or KVW_OK. */
enum kvw_err kvw_model_groups_walk(struct kvw_walk *walk, const struct kvw_node *list) KVW_MUST_CHECK;

/* After kvw_model_aliases_resolve: no model is an alias, no group of a model has another one's workers, some group
 * gets requests. */
void kvw_model_groups_check(struct kvw_build *build);

/* Whether the entry says something by this key: enum kvw_group_key_index. */
bool kvw_model_group_has(const struct kvw_model_group *group, size_t key);

/* Whether two whole lists say the same, in whatever order. */
bool kvw_model_groups_same(const struct kvw_config *a, const struct kvw_config *b);

/* The list on one line of YAML, on the heap; the caller's. KVW_ENOMEM. */
enum kvw_err kvw_model_groups_text(const struct kvw_config *config, char **out) KVW_MUST_CHECK;

/* A reload: weights that were changed since they were read, of models for which both files have the same groups with
 * the same weights, hold on. */
void kvw_model_groups_keep(const struct kvw_config *before, const struct kvw_config *after);

/* Frees the list. */
void kvw_model_groups_release(struct kvw_config *config);

#endif
