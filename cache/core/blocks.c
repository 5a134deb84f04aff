/*
 * blocks.c - copies engine block names and items; blocks.h says why.
 */
#include <stdlib.h>
#include <string.h>

#include "core/blocks.h"

#define MAX_BLOCKS (1u << 20) /* most blocks of a chunk */

bool kvt_blocks_valid(const struct kvt_blocks *b)
{
	if (b == NULL)
		return true;
	if (b->hash_bytes != 8 && b->hash_bytes != 16 && b->hash_bytes != 32)
		return false;
	if (b->hashes == NULL || b->count == 0 || b->count > MAX_BLOCKS)
		return false;
	return b->tokens == NULL || (b->block_size != 0 && b->block_size <= MAX_BLOCKS);
}

/* Token ids come first, since they need the strictest alignment. */
static size_t token_bytes(const struct kvt_blocks *b, bool tokens)
{
	return tokens && b->tokens != NULL ? (size_t)b->count * b->block_size * sizeof(uint32_t)
					   : 0;
}

size_t kvt_blocks_bytes(const struct kvt_blocks *b, bool tokens)
{
	return token_bytes(b, tokens) + (size_t)b->hash_bytes * b->count +
	       (b->parent != NULL ? b->hash_bytes : 0) +
	       (b->lora_name != NULL ? strlen(b->lora_name) + 1 : 0);
}

void kvt_blocks_pack(const struct kvt_blocks *b, bool tokens, void *room, struct kvt_blocks *out)
{
	size_t ids = token_bytes(b, tokens), hashes = (size_t)b->hash_bytes * b->count;
	uint8_t *at = room;

	*out = *b;
	out->tokens = ids != 0 ? memcpy(room, b->tokens, ids) : NULL;
	at += ids;
	out->hashes = memcpy(at, b->hashes, hashes);
	at += hashes;
	if (b->parent != NULL) {
		out->parent = memcpy(at, b->parent, b->hash_bytes);
		at += b->hash_bytes;
	}
	if (b->lora_name != NULL)
		out->lora_name = memcpy(at, b->lora_name, strlen(b->lora_name) + 1);
}

struct kvt_blocks *kvt_blocks_copy(const struct kvt_blocks *blocks)
{
	struct kvt_blocks *copy = malloc(sizeof(*copy) + kvt_blocks_bytes(blocks, false));

	if (copy != NULL)
		kvt_blocks_pack(blocks, false, copy + 1, copy);
	return copy;
}

struct kvt_cargo *kvt_cargo_make(const struct kvt_item *item)
{
	size_t blocks = item->blocks != NULL ? kvt_blocks_bytes(item->blocks, true) : 0;
	struct kvt_cargo *cargo = malloc(sizeof(*cargo) + blocks);

	if (cargo == NULL)
		return NULL;
	*cargo = (struct kvt_cargo){.item = *item};
	if (item->parent != NULL) {
		cargo->parent = *item->parent;
		cargo->item.parent = &cargo->parent;
	}
	if (item->blocks != NULL) {
		kvt_blocks_pack(item->blocks, true, cargo + 1, &cargo->blocks);
		cargo->item.blocks = &cargo->blocks;
	}
	return cargo;
}

void kvt_cargo_free(struct kvt_cargo *cargo)
{
	if (cargo != NULL)
		free(cargo->pieces);
	free(cargo);
}
