/*
 * model_aliases.h - the mapping `models`: further names for models, which clients may use.
 *
 * kvw_config_alias (config.h) looks names up in the result. Pure functions, except the one that
 * walks the document.
 */
#ifndef KVW_CONFIG_MODEL_ALIASES_H
#define KVW_CONFIG_MODEL_ALIASES_H

#include "config/build.h"

/* Called by the walk of a build for the name `models`. KVW_ENOMEM or KVW_OK. */
enum kvw_err kvw_model_aliases_walk(struct kvw_walk *walk, const struct kvw_node *map) KVW_MUST_CHECK;

/* To be called when the whole file was read: follows each alias to its end. An alias that leads
 * back to itself is a mistake. */
void kvw_model_aliases_resolve(struct kvw_build *build);

/* To be called after that: reports promises, limits and groups for an alias as mistakes, because
 * they would hold for no request. */
void kvw_model_aliases_check(struct kvw_build *build);

/* Returns whether both configurations have the same aliases, in any order. */
bool kvw_model_aliases_same(const struct kvw_config *a, const struct kvw_config *b);

/* Writes the aliases on one line of YAML on the heap, which belongs to the caller. KVW_ENOMEM. */
enum kvw_err kvw_model_aliases_text(const struct kvw_config *config, char **out) KVW_MUST_CHECK;

void kvw_model_aliases_release(struct kvw_config *config);

#endif
