/*
 * sim_store_names.c - what a sequence's chunks are called, and which of them a step completed.
 *
 * A chunk's chain id is SHA-256 over the one before and its tokens, as where an engine gives none; a
 * prompt with a salt or an adapter begins with another one. Both id and key are kept with the
 * sequence, and so is what LMCache's controller calls the chunk.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_store_parts.h"

#define WORDS      9u /* words of 8 bytes per chunk: chain id, key, LMCache's hash */
#define KEY_AT     4u
#define LMCACHE_AT 8u

static uint8_t *chain_of(const struct kvb_seq *seq, uint32_t index)
{
	return (uint8_t *)(seq->chunks + (size_t)index * WORDS);
}

const struct kvt_key *kvb_store_key(const struct kvb_seq *seq, uint32_t index)
{
	return (const struct kvt_key *)(seq->chunks + (size_t)index * WORDS + KEY_AT);
}

static void begin_chain(const struct kvb_seq *seq, uint8_t out[32])
{
	uint32_t words[2] = {(uint32_t)seq->hashes[0], (uint32_t)(seq->hashes[0] >> 32)};

	kvt_chain_id(NULL, words, 2, out);
}

static bool make_name(struct kvb_store *store, struct kvb_seq *seq, uint32_t index)
{
	uint32_t size = store->tiers->chunk_tokens;
	struct kvt_key_parts parts = {.size = sizeof(parts),
		.chain_id = chain_of(seq, index),
		.chain_id_bytes = 32,
		.hash_recipe = "kvsim",
		.fingerprint = store->settings.fingerprint};
	uint64_t *hash = &seq->chunks[(size_t)index * WORDS + LMCACHE_AT];
	uint64_t hash_before = index == 0 ? store->lmcache_root : *(hash - WORDS);
	uint8_t before[32];

	if (store->has_controller &&
		kvt_lmcache_hash(&store->settings, hash_before, seq->tokens + (size_t)index * size,
			size, hash) != KVT_OK)
		return false;
	if (index == 0)
		begin_chain(seq, before);
	else
		memcpy(before, chain_of(seq, index - 1), sizeof(before));
	kvt_chain_id(before, seq->tokens + (size_t)index * size, size, chain_of(seq, index));
	return kvt_key_make(&parts,
		       (struct kvt_key *)(seq->chunks + (size_t)index * WORDS + KEY_AT)) == KVT_OK;
}

bool kvb_store_name(struct kvb_store *store, struct kvb_seq *seq)
{
	uint32_t size = store->tiers->chunk_tokens;

	if (seq->chunks == NULL) {
		size_t most = (seq->prompt_len + seq->max_new) / size;

		seq->chunks = malloc((most + 1) * WORDS * sizeof(*seq->chunks));
		if (seq->chunks == NULL)
			return false;
	}
	while ((seq->chunk_count + 1) * size <= seq->total_len) {
		if (!make_name(store, seq, seq->chunk_count))
			return false;
		seq->chunk_count++;
	}
	return true;
}

/* --- puts ------------------------------------------------------------------------------------- */

void kvb_store_free_puts(struct kvb_put *puts, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		free(puts[i].memory);
	free(puts);
}

static struct kvb_put *new_put(struct kvb_store *store)
{
	if (store->put_count == store->put_room) {
		uint32_t room = store->put_room == 0 ? 32 : store->put_room * 2;
		struct kvb_put *grown = realloc(store->puts, room * sizeof(*grown));

		if (grown == NULL)
			return NULL;
		store->puts = grown;
		store->put_room = room;
	}
	return memset(&store->puts[store->put_count], 0, sizeof(*store->puts));
}

static void write_hash(uint8_t out[8], uint64_t hash)
{
	for (int i = 0; i < 8; i++)
		out[i] = (uint8_t)(hash >> (56 - 8 * i));
}

/* The names of the chunk's blocks, as the device's events have them; `plain`: its tokens alone decide
 * what it is, which is all that LMCache's controller knows of it. */
static bool name_blocks(struct kvb_store *store, struct kvb_put *put, const struct kvb_seq *seq,
	uint32_t index, const char *lora, bool plain)
{
	uint32_t size = store->tiers->chunk_tokens, block = store->config.options->block_size;
	uint32_t count = size / block, first = index * count;
	size_t lora_len = lora == NULL ? 0 : strlen(lora) + 1;
	uint32_t *tokens = malloc(size * sizeof(*tokens) + (size_t)(count + 1) * 8 + lora_len);
	uint8_t *hashes = (uint8_t *)(tokens + size);

	if (tokens == NULL)
		return false;
	put->memory = tokens;
	memcpy(tokens, seq->tokens + (size_t)index * size, size * sizeof(*tokens));
	for (uint32_t i = 0; i < count; i++)
		write_hash(hashes + (size_t)i * 8, kvb_seq_block(seq, first + i));
	put->blocks = (struct kvt_blocks){.hashes = hashes,
		.hash_bytes = 8,
		.count = count,
		.tokens = tokens,
		.block_size = block,
		.has_lmcache_hash = store->has_controller && plain};
	if (store->has_controller)
		put->blocks.lmcache_hash = seq->chunks[(size_t)index * WORDS + LMCACHE_AT];
	if (first > 0) {
		write_hash(hashes + (size_t)count * 8, kvb_seq_block(seq, first - 1));
		put->blocks.parent = hashes + (size_t)count * 8;
	}
	if (lora != NULL)
		put->blocks.lora_name = memcpy(hashes + (size_t)(count + 1) * 8, lora, lora_len);
	put->has_blocks = true;
	return true;
}

void kvb_store_computed(
	struct kvb_store *store, struct kvb_seq *seq, const char *tenant, const char *lora)
{
	uint32_t chunks = seq->computed / store->tiers->chunk_tokens;

	if (chunks <= seq->chunks_stored || !kvb_store_name(store, seq))
		return;
	for (; seq->chunks_stored < chunks; seq->chunks_stored++) {
		uint32_t index = seq->chunks_stored;
		struct kvb_put *put = new_put(store);

		if (put == NULL)
			return;
		put->key = *kvb_store_key(seq, index);
		put->has_parent = index > 0;
		if (index > 0)
			put->parent = *kvb_store_key(seq, index - 1);
		if (tenant != NULL)
			kvt_tenant_of(tenant, strlen(tenant), &put->tenant);
		if (store->config.events &&
			!name_blocks(store, put, seq, index, lora, tenant == NULL && lora == NULL))
			return;
		store->put_count++;
	}
}
