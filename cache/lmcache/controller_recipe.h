/*
 * controller_recipe.h - how this installation's LMCache names chunks, from the configuration.
 */
#ifndef KVT_CONTROLLER_RECIPE_H
#define KVT_CONTROLLER_RECIPE_H

#include "kvtier/kvtier.h"
#include "wire/lmcache_hash.h"

/* Texts of *out are those of the configuration. NULL, or a sentence: why it cannot be computed. */
const char *kvt_controller_recipe(const struct kvt_config *config, struct kvw_lmcache_recipe *out);

#endif
