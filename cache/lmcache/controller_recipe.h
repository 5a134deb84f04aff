/*
 * controller_recipe.h - how this installation's LMCache names chunks, by the configuration.
 */
#ifndef KVT_CONTROLLER_RECIPE_H
#define KVT_CONTROLLER_RECIPE_H

#include "kvtier/kvtier.h"
#include "wire/lmcache_hash.h"

/* Makes the recipe. Texts of *out belong to the configuration. NULL: success, else a sentence with
 * the reason. */
const char *kvt_controller_recipe(const struct kvt_config *config, struct kvw_lmcache_recipe *out);

#endif
