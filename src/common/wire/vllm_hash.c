/*
 * vllm_hash.c - vllm/v1/core/kv_cache_utils.py: init_none_hash() and hash_block_tokens().
 *
 * Extra keys are tagged with what they are, so that a salt cannot pass for an adapter's name. Events
 * show them without the tag, and an adapter without its path.
 */
#include "wire/vllm_hash.h"

#include <string.h>

#define DEFAULT_SEED "vllm-none-hash"

/* What is hashed for a block. */
struct block {
	const struct kvw_vllm_recipe *recipe;
	const struct kvw_vllm_chain *chain;
	const uint32_t *tokens;
};

static enum kvw_err hasher_for(const struct kvw_vllm_recipe *recipe, struct kvw_hasher **hasher)
{
	if (recipe->block_size == 0 || recipe->block_size > KVW_VLLM_BLOCK_MAX)
		return KVW_EINVAL;
	return kvw_hasher_create(kvw_object_digest_kind(recipe->hash), hasher);
}

enum kvw_err kvw_vllm_chain_begin(
	const struct kvw_vllm_recipe *recipe, struct kvw_vllm_chain *chain)
{
	struct kvw_vllm_chain begun = {.started = false};
	struct kvw_hasher *hasher;
	enum kvw_err err;

	if (recipe->seed == NULL && kvw_object_digest_kind(recipe->hash) == KVW_DIGEST_XXH3_128)
		return KVW_ENOTFOUND;
	err = hasher_for(recipe, &hasher);
	if (err != KVW_OK)
		return err;
	begun.parent.size = (uint8_t)kvw_hasher_size(hasher);
	err = kvw_object_digest_text(hasher, kvw_object_format(recipe->hash),
		recipe->seed != NULL ? recipe->seed : DEFAULT_SEED, begun.parent.bytes);
	if (err == KVW_OK)
		*chain = begun;
	kvw_hasher_destroy(hasher);
	return err;
}

static void write_slice(
	struct kvw_hasher *out, const struct kvw_format *format, struct kvw_slice text)
{
	format->text(out, text.data, (uint32_t)text.len);
}

static void write_extra(struct kvw_hasher *out, const struct kvw_format *format,
	const struct kvw_vllm_recipe *recipe, bool first_block)
{
	bool salted = first_block && recipe->cache_salt.len > 0;
	size_t count = (size_t)recipe->lora + (size_t)salted;

	if (count == 0) {
		format->none(out);
		return;
	}
	format->tuple_begin(out, count);
	if (recipe->lora) {
		format->tuple_begin(out, 3);
		write_slice(out, format, KVW_SLICE("lora"));
		write_slice(out, format, recipe->lora_name);
		write_slice(out, format, recipe->lora_path);
		format->tuple_end(out, 3);
	}
	if (salted) {
		format->tuple_begin(out, 2);
		write_slice(out, format, KVW_SLICE("cache_salt"));
		write_slice(out, format, recipe->cache_salt);
		format->tuple_end(out, 2);
	}
	format->tuple_end(out, count);
}

static void write_block(struct kvw_hasher *out, const struct kvw_format *format, const void *value)
{
	const struct block *block = value;
	const struct kvw_vllm_digest *parent = &block->chain->parent;

	format->tuple_begin(out, 3);
	format->bytes(out, parent->bytes, parent->size);
	kvw_object_write_tokens(out, format, block->tokens, block->recipe->block_size);
	write_extra(out, format, block->recipe, !block->chain->started);
	format->tuple_end(out, 3);
}

enum kvw_err kvw_vllm_hash(const struct kvw_vllm_recipe *recipe, struct kvw_vllm_chain *chain,
	const uint32_t *tokens, size_t count, struct kvw_vllm_digest *digests, size_t cap,
	size_t *digest_count)
{
	struct block block = {.recipe = recipe, .chain = chain};
	struct kvw_vllm_digest digest = {.size = 0};
	struct kvw_hasher *hasher = NULL;
	enum kvw_err err = hasher_for(recipe, &hasher);
	size_t done = 0;

	*digest_count = 0;
	if (err != KVW_OK)
		return err;
	for (; done < cap && count >= recipe->block_size; count -= recipe->block_size) {
		block.tokens = tokens + done * recipe->block_size;
		err = kvw_object_digest(
			hasher, kvw_object_format(recipe->hash), write_block, &block, digest.bytes);
		if (err != KVW_OK)
			break;
		digest.size = (uint8_t)kvw_hasher_size(hasher);
		digests[done++] = digest;
		*chain = (struct kvw_vllm_chain){.parent = digest, .started = true};
	}
	*digest_count = done;
	kvw_hasher_destroy(hasher);
	return err;
}

uint64_t kvw_vllm_event_hash(const struct kvw_vllm_digest *digest)
{
	uint64_t value = 0;

	for (size_t i = digest->size - 8u; i < digest->size; i++)
		value = value << 8 | digest->bytes[i];
	return value;
}
