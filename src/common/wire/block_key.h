/*
 * block_key.h - the router's own key of a block: a chain over token ids.
 *
 *	root = XXH3-64 of block size, model, adapter and salt, each seeded with the one before
 *	key  = XXH3-64(token ids as little-endian 32-bit words, seed: the parent's key or root)
 *
 * A key stands for a block and all blocks before it. It does not depend on the engine's name of the
 * block, so engines with different hash algorithms or seeds share one index. All replicas of a
 * router compute the same keys. Pure functions, any thread, no allocation.
 */
#ifndef KVW_BLOCK_KEY_H
#define KVW_BLOCK_KEY_H

#include <stddef.h>
#include <stdint.h>

#include "kvway/slice.h"

/* Data other than tokens by which blocks differ. Slices are borrowed during the call. */
struct kvw_block_space {
	uint32_t block_size; /* tokens */
	struct kvw_slice model;
	struct kvw_slice lora;       /* adapter's name; empty: none */
	struct kvw_slice cache_salt; /* empty: none */
};

/* Returns the key that stands before a prompt's first block. */
uint64_t kvw_block_root(const struct kvw_block_space *space);

/* Returns the key of the block tokens[0..count), which follows the block with the key `parent`. */
uint64_t kvw_block_key(uint64_t parent, const uint32_t *tokens, size_t count);

/*
 * Computes the keys of the full blocks in tokens[0..count), which follow *parent; at most `cap`.
 * Sets *parent to the last key and returns the number of keys. block_size must not be 0.
 */
size_t kvw_block_keys(uint64_t *parent, const uint32_t *tokens, size_t count, uint32_t block_size,
	uint64_t *keys, size_t cap);

#endif
