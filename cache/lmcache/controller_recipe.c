/*
 * controller_recipe.c - converts settings to LMCache's hash recipe.
 */
#include <stdlib.h>
#include <string.h>

#include "lmcache/controller_recipe.h"

const char *kvt_controller_recipe(const struct kvt_config *config, struct kvw_lmcache_recipe *out)
{
	const char *number = config->controller_none_hash, *seed = config->controller_hash_seed;
	struct kvw_lmcache_recipe recipe = {
		.chunk_size = config->controller_chunk_size, .partial_chunk = true};

	(void)kvw_lmcache_algorithm_parse(kvw_slice_of(config->controller_hash), &recipe.algorithm);
	if (strcmp(seed, "unset") != 0)
		recipe.seed = seed;
	if (number[0] != '\0') {
		recipe.root = KVW_LMCACHE_ROOT_NUMBER;
		recipe.none_hash = number[0] == '-' ? (uint64_t)strtoll(number, NULL, 10)
						    : strtoull(number, NULL, 10);
	}
	*out = recipe;
	return kvw_lmcache_recipe_fault(out);
}
