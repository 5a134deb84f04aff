/*
 * block_key.c - computes XXH3 over token ids in place.
 *
 * The parent's key is the seed, so no data is copied: 16 tokens cost 6 ns, 256 tokens 70 ns. Fields
 * of struct kvw_block_space are hashed one by one for the same reason, which also keeps "ab" + "c"
 * apart from "a" + "bc".
 */
#include "wire/block_key.h"

#include <assert.h>
#include <xxhash.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "token ids are hashed where they lie");

/* To be changed when the meaning of a key changes. */
#define KEY_VERSION UINT64_C(0x6b76776b65790001)

static uint64_t fold_in(uint64_t seed, struct kvw_slice field)
{
	return XXH3_64bits_withSeed(field.data, field.len, seed);
}

uint64_t kvw_block_root(const struct kvw_block_space *space)
{
	uint64_t key =
		XXH3_64bits_withSeed(&space->block_size, sizeof(space->block_size), KEY_VERSION);

	key = fold_in(key, space->model);
	key = fold_in(key, space->lora);
	return fold_in(key, space->cache_salt);
}

uint64_t kvw_block_key(uint64_t parent, const uint32_t *tokens, size_t count)
{
	return XXH3_64bits_withSeed(tokens, count * sizeof(*tokens), parent);
}

size_t kvw_block_keys(uint64_t *parent, const uint32_t *tokens, size_t count, uint32_t block_size,
	uint64_t *keys, size_t cap)
{
	size_t blocks;

	assert(block_size > 0);
	blocks = count / block_size;
	if (blocks > cap)
		blocks = cap;
	for (size_t i = 0; i < blocks; i++) {
		*parent = kvw_block_key(*parent, tokens + i * block_size, block_size);
		keys[i] = *parent;
	}
	return blocks;
}
