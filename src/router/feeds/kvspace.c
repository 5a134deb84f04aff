/*
 * kvspace.c - keeps the key spaces and computes a prompt's keys.
 *
 * The table only grows, and has KVW_EXACT_CHAINS places from the start: the feed's thread writes
 * the next place and then publishes the count with release order; readers load the count with
 * acquire order and see complete spaces. There are no locks, and no entry moves.
 *
 * An engine's key is the router's own (block_key.h) with the model left out: a fleet may serve one
 * model under several names, and the holders that a look-up finds are compared with the workers
 * that serve the model in any case. So two models of one tokenizer and block size share keys, but a
 * worker never counts as holder of another model's blocks.
 */
#include "feeds/kvspace.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "wire/block_key.h"

struct kvw_kvspaces {
	struct kvw_kvspace items[KVW_EXACT_CHAINS];
	/* LMCache: the key that precedes a prompt's first chunk */
	uint64_t roots[KVW_EXACT_CHAINS];
	_Atomic size_t count;             /* the items below it are complete (release order) */
};

enum kvw_err kvw_kvspaces_create(struct kvw_kvspaces **out)
{
	struct kvw_kvspaces *spaces = calloc(1, sizeof(*spaces));

	if (spaces == NULL)
		return KVW_ENOMEM;
	*out = spaces;
	return KVW_OK;
}

void kvw_kvspaces_destroy(struct kvw_kvspaces *spaces)
{
	if (spaces == NULL)
		return;
	for (size_t i = 0; i < atomic_load(&spaces->count); i++)
		free((char *)spaces->items[i].recipe.seed);
	free(spaces);
}

size_t kvw_kvspaces_count(const struct kvw_kvspaces *spaces)
{
	return atomic_load_explicit(&spaces->count, memory_order_acquire);
}

const struct kvw_kvspace *kvw_kvspaces_get(const struct kvw_kvspaces *spaces, size_t space)
{
	assert(space < kvw_kvspaces_count(spaces));
	return &spaces->items[space];
}

/* --- feed thread --- */

/* Publishes a space, of which all members but the number are set. */
static uint32_t add_root(
	struct kvw_kvspaces *spaces, const struct kvw_kvspace *space, uint64_t root)
{
	size_t count = atomic_load_explicit(&spaces->count, memory_order_relaxed);

	spaces->items[count] = *space;
	spaces->items[count].number = (uint32_t)count;
	spaces->roots[count] = root;
	atomic_store_explicit(&spaces->count, count + 1, memory_order_release);
	return (uint32_t)count;
}

/* Finds or adds the space with the reporter and block size of `added`, whose keys go by chain, by
 * position or by hash. */
static enum kvw_err take_space(
	struct kvw_kvspaces *spaces, const struct kvw_kvspace *added, uint32_t *space)
{
	uint32_t block_tokens = added->block_tokens;
	size_t count = kvw_kvspaces_count(spaces), positions = 0;

	if (block_tokens == 0 || block_tokens > KVW_KVSPACE_BLOCK_MAX)
		return KVW_EINVAL;
	for (size_t i = 0; i < count; i++) {
		if (spaces->items[i].reporter == added->reporter &&
			spaces->items[i].by_position == added->by_position &&
			spaces->items[i].by_hash == added->by_hash &&
			spaces->items[i].block_tokens == block_tokens) {
			*space = (uint32_t)i;
			return KVW_OK;
		}
		positions += spaces->items[i].by_position;
	}
	if (count == KVW_EXACT_CHAINS ||
		(added->by_position && positions == KVW_KVSPACE_POSITIONS_MOST))
		return KVW_ELIMIT;
	*space = add_root(spaces, added, 0);
	return KVW_OK;
}

enum kvw_err kvw_kvspaces_engine(
	struct kvw_kvspaces *spaces, uint32_t block_tokens, uint32_t *space)
{
	const struct kvw_kvspace added = {
		.reporter = KVW_REPORTER_ENGINE, .block_tokens = block_tokens};

	return take_space(spaces, &added, space);
}

enum kvw_err kvw_kvspaces_positions(
	struct kvw_kvspaces *spaces, uint32_t chunk_tokens, uint32_t *space)
{
	const struct kvw_kvspace added = {.reporter = KVW_REPORTER_LMCACHE,
		.block_tokens = chunk_tokens,
		.by_position = true};

	return take_space(spaces, &added, space);
}

enum kvw_err kvw_kvspaces_hashes(
	struct kvw_kvspaces *spaces, uint32_t chunk_tokens, uint32_t *space)
{
	const struct kvw_kvspace added = {
		.reporter = KVW_REPORTER_LMCACHE, .block_tokens = chunk_tokens, .by_hash = true};

	return take_space(spaces, &added, space);
}

static bool equal_text(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* Returns whether both recipes have the same settings, and so give every prompt the same keys. */
static bool equal_recipe(const struct kvw_lmcache_recipe *a, const struct kvw_lmcache_recipe *b)
{
	return a->algorithm == b->algorithm && a->siphash == b->siphash && a->extra == b->extra &&
	       a->fold == b->fold && a->root == b->root && equal_text(a->seed, b->seed) &&
	       a->none_hash == b->none_hash && a->chunk_size == b->chunk_size &&
	       a->partial_chunk == b->partial_chunk;
}

enum kvw_err kvw_kvspaces_lmcache(
	struct kvw_kvspaces *spaces, const struct kvw_lmcache_recipe *recipe, uint32_t *space)
{
	struct kvw_kvspace added = {.reporter = KVW_REPORTER_LMCACHE,
		.block_tokens = recipe->chunk_size,
		.recipe = *recipe};
	size_t count = kvw_kvspaces_count(spaces);
	uint64_t root;
	enum kvw_err err;

	for (size_t i = 0; i < count; i++) {
		if (spaces->items[i].reporter == KVW_REPORTER_LMCACHE &&
			!spaces->items[i].by_position && !spaces->items[i].by_hash &&
			equal_recipe(&spaces->items[i].recipe, recipe)) {
			*space = (uint32_t)i;
			return KVW_OK;
		}
	}
	err = kvw_lmcache_begin(recipe, &root);
	if (err != KVW_OK)
		return err;
	if (count == KVW_EXACT_CHAINS)
		return KVW_ELIMIT;
	if (recipe->seed != NULL) {
		added.recipe.seed = strdup(recipe->seed);
		if (added.recipe.seed == NULL)
			return KVW_ENOMEM;
	}
	*space = add_root(spaces, &added, root);
	return KVW_OK;
}

/* --- any thread --- */

uint64_t kvw_kvspace_engine_root(
	uint32_t block_tokens, struct kvw_slice lora, struct kvw_slice cache_salt)
{
	const struct kvw_block_space space = {
		.block_size = block_tokens, .lora = lora, .cache_salt = cache_salt};

	return kvw_block_root(&space);
}

uint64_t kvw_kvspace_position_key(
	uint64_t root, uint32_t nth, const uint32_t *tokens, uint32_t count)
{
	return kvw_block_key(kvw_block_key(root, &nth, 1), tokens, count);
}

uint64_t kvw_kvspace_hash_key(uint64_t root, const uint8_t hash[KVW_BLAKE3_BYTES])
{
	uint32_t words[KVW_BLAKE3_BYTES / sizeof(uint32_t)];

	memcpy(words, hash, sizeof(words));
	return kvw_block_key(root, words, sizeof(words) / sizeof(words[0]));
}

/* Makes room for the keys that `tokens` tokens have in the first `count` spaces. */
static enum kvw_err make_room(
	struct kvw_kvchains *chains, const struct kvw_kvspaces *spaces, size_t count, size_t tokens)
{
	size_t need = 0, room;
	uint64_t *keys;

	for (size_t i = 0; i < count; i++)
		need += tokens / spaces->items[i].block_tokens;
	if (need < chains->room)
		return KVW_OK;
	room = need + need / 2 + 16;
	keys = realloc(chains->keys, room * sizeof(*keys));
	if (keys == NULL)
		return KVW_ENOMEM;
	chains->keys = keys;
	chains->room = room;
	return KVW_OK;
}

static void fill_hashes(
	uint64_t root, const uint32_t *tokens, size_t size, uint64_t *keys, size_t count)
{
	struct kvw_lmcache_chunks chunks;

	kvw_lmcache_chunks_start(&chunks);
	for (size_t i = 0; i < count; i++) {
		kvw_lmcache_chunks_next(&chunks, tokens + i * size, size);
		keys[i] = kvw_kvspace_hash_key(root, chunks.hash);
	}
}

static enum kvw_err fill_one(const struct kvw_kvspaces *spaces, size_t number,
	const struct kvw_kvprompt *prompt, uint64_t *keys, size_t cap, size_t *count)
{
	const struct kvw_kvspace *space = &spaces->items[number];
	uint64_t state = spaces->roots[number];

	if (space->reporter == KVW_REPORTER_LMCACHE && !space->by_position && !space->by_hash)
		return kvw_lmcache_hash(
			&space->recipe, &state, prompt->tokens, prompt->count, keys, cap, count);
	state = kvw_kvspace_engine_root(space->block_tokens, prompt->lora, prompt->cache_salt);
	if (space->by_position) {
		for (*count = 0; *count < cap; (*count)++)
			keys[*count] = kvw_kvspace_position_key(state, (uint32_t)*count,
				prompt->tokens + *count * space->block_tokens, space->block_tokens);
		return KVW_OK;
	}
	if (space->by_hash) {
		fill_hashes(state, prompt->tokens, space->block_tokens, keys, cap);
		*count = cap;
		return KVW_OK;
	}
	*count = kvw_block_keys(
		&state, prompt->tokens, prompt->count, space->block_tokens, keys, cap);
	return KVW_OK;
}

enum kvw_err kvw_kvchains_fill(struct kvw_kvchains *chains, const struct kvw_kvspaces *spaces,
	const struct kvw_kvprompt *prompt)
{
	size_t count = kvw_kvspaces_count(spaces), used = 0;
	enum kvw_err err = make_room(chains, spaces, count, prompt->count);

	chains->count = 0;
	for (size_t i = 0; i < count && err == KVW_OK; i++) {
		const struct kvw_kvspace *space = &spaces->items[i];
		size_t whole = prompt->count / space->block_tokens, made = 0;

		/* Limited to whole blocks, since a partial chunk has no key. */
		err = fill_one(spaces, i, prompt, chains->keys + used, whole, &made);
		chains->chains[i] = (struct kvw_exact_chain){.reporter = space->reporter,
			.space = space->number,
			.block_tokens = space->block_tokens,
			.count = (uint32_t)made,
			.keys = chains->keys + used};
		used += made;
	}
	if (err == KVW_OK)
		chains->count = (uint32_t)count;
	return err;
}

void kvw_kvchains_finish(struct kvw_kvchains *chains)
{
	free(chains->keys);
	*chains = (struct kvw_kvchains){.count = 0};
}
