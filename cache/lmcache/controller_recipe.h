/*
 * controller_recipe.h - finds in the configuration how this installation's LMCache names chunks.
 */
#ifndef KVT_CONTROLLER_RECIPE_H
#define KVT_CONTROLLER_RECIPE_H

#include "kvtier/kvtier.h"
#include "wire/lmcache_hash.h"

/* Makes the recipe, whose texts belong to the configuration. NULL: success; otherwise a sentence
 * with the reason. */
const char *kvt_controller_recipe(const struct kvt_config *config, struct kvw_lmcache_recipe *out);

#endif
