/*
 * blocks.h - copies of what a caller says of a chunk, besides the chunk's bytes.
 *
 * The engine's block names are borrowed only during a put, but events about the chunk and lower
 * tiers need them later. A copy is one allocation that includes the arrays.
 */
#ifndef KVT_BLOCKS_H
#define KVT_BLOCKS_H

#include <stdbool.h>

#include "kvtier/kvtier.h"

/* Returns whether the struct's counts and pointers are consistent. NULL is valid. */
bool kvt_blocks_valid(const struct kvt_blocks *blocks);

/* Copies the blocks and points the copy's arrays into `room`. Returns the arrays' size in bytes.
 * tokens: whether token ids are copied, too. */
size_t kvt_blocks_bytes(const struct kvt_blocks *blocks, bool tokens);
void kvt_blocks_pack(
	const struct kvt_blocks *blocks, bool tokens, void *room, struct kvt_blocks *out);

/* Copies to the heap, without token ids; free with free(). NULL: out of memory. */
struct kvt_blocks *kvt_blocks_copy(const struct kvt_blocks *blocks);

/* A copy of an item and all data that the item points to, for the thread that stores the chunk
 * later. */
struct kvt_cargo {
	struct kvt_item item; /* points into this object */
	struct kvt_key parent;
	struct kvt_blocks blocks;
	uint32_t users; /* under the core's lock */
	/* Checksums of the chunk's pieces, if a lower tier can use them; else NULL. */
	struct kvt_checksum *pieces, whole;
	uint64_t piece_bytes; /* length in bytes of each of `pieces` but the last */
};

struct kvt_cargo *kvt_cargo_make(const struct kvt_item *item);
void kvt_cargo_free(struct kvt_cargo *cargo); /* NULL is allowed */

#endif
