/*
 * controlled.c - executes commands of LMCache's controller, and computes LMCache's hashes for
 * callers that put chunks.
 *
 * A controller that cannot be reached, or is configured wrong, does not change the cache: a warning
 * is logged. The controller's client is made before the tiers, since chunks found in the tiers'
 * files are reported to the controller, too; commands from the controller wait until the tiers are
 * open.
 */
#include "core/controlled.h"
#include "lmcache/controller_recipe.h"

static uint64_t clear(void *self)
{
	struct kvt *k = self;
	uint64_t tokens = 0;

	if (atomic_load(&k->opened))
		(void)kvt_l1_clear(k->l1, &tokens);
	return tokens;
}

static void pin(void *self, const struct kvt_key *keys, size_t n, bool pin)
{
	struct kvt *k = self;

	if (!atomic_load(&k->opened))
		return;
	if (pin)
		(void)!kvt_pin(k, keys, n, NULL);
	else
		(void)!kvt_unpin(k, keys, n, NULL);
}

enum kvt_status kvt_controlled_start(struct kvt *k)
{
	struct kvt_controller_actions actions = {k, clear, pin};
	enum kvt_status status =
		kvt_controller_create(&k->config, &k->surroundings, &actions, &k->controller);

	return status == KVT_MISS ? KVT_OK : status;
}

/* --- hashes ----------------------------------------------------------------------------------- */

/* The configuration up to the last member that is read here. */
#define NEEDED (offsetof(struct kvt_config, controller_none_hash) + sizeof(const char *))

/* Reads the hash recipe from the configuration. KVT_MISS: no controller is configured. */
static enum kvt_status recipe_of(const struct kvt_config *config, struct kvw_lmcache_recipe *out)
{
	if (config == NULL || config->abi != KVT_ABI)
		return KVT_EINVAL;
	if (config->size < NEEDED || config->controller_pull == NULL ||
		config->controller_pull[0] == '\0')
		return KVT_MISS;
	return kvt_controller_recipe(config, out) == NULL ? KVT_OK : KVT_ENOTSUP;
}

enum kvt_status kvt_lmcache_root(const struct kvt_config *config, uint64_t *state)
{
	struct kvw_lmcache_recipe recipe;
	enum kvt_status status = recipe_of(config, &recipe);

	if (status != KVT_OK || state == NULL)
		return status != KVT_OK ? status : KVT_EINVAL;
	return kvw_lmcache_begin(&recipe, state) == KVW_OK ? KVT_OK : KVT_ENOMEM;
}

enum kvt_status kvt_lmcache_hash(const struct kvt_config *config, uint64_t before,
	const uint32_t *tokens, size_t count, uint64_t *hash)
{
	struct kvw_lmcache_recipe recipe;
	enum kvt_status status = recipe_of(config, &recipe);
	uint64_t made;
	size_t n = 0;

	if (status != KVT_OK)
		return status;
	if (tokens == NULL || count == 0 || count > KVW_LMCACHE_CHUNK_MAX || hash == NULL)
		return KVT_EINVAL;
	recipe.chunk_size = (uint32_t)count;
	if (kvw_lmcache_hash(&recipe, &before, tokens, count, &made, 1, &n) != KVW_OK || n != 1)
		return KVT_ENOMEM;
	*hash = made;
	return KVT_OK;
}
