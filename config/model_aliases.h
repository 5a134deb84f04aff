/*
 * model_aliases.h - the mapping `models`: names under which clients may ask for models that workers serve as others.
 *
 * kvw_config_alias (config.h) answers from the result. Pure functions but for the walk.
 */
#ifndef KVW_CONFIG_MODEL_ALIASES_H
#define KVW_CONFIG_MODEL_ALIASES_H

#include "config/build.h"

/* Hook of the walk, which is that of a build, for the name `models`. KVW_ENOMEM or KVW_OK. */
enum kvw_err kvw_model_aliases_walk(struct kvw_walk *walk, const struct kvw_node *map) KVW_MUST_CHECK;

/* Once all was read: follows each alias to its end; one that leads back to itself is a mistake. */
void kvw_model_aliases_resolve(struct kvw_build *build);

/* After that: a promise to an alias, a limit or a group of one would hold for no request, so each is a mistake. */
void kvw_model_aliases_check(struct kvw_build *build);

/* Whether both mean the same, in whatever order. */
bool kvw_model_aliases_same(const struct kvw_config *a, const struct kvw_config *b);

/* On one line of YAML, on the heap; the caller's. KVW_ENOMEM. */
enum kvw_err kvw_model_aliases_text(const struct kvw_config *config, char **out) KVW_MUST_CHECK;

void kvw_model_aliases_release(struct kvw_config *config);

#endif
