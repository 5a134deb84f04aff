/*
 * blocks.h - copies of a caller's data about a chunk, besides its bytes.
 *
 * The engine's names are borrowed only during a put, but events about the chunk and lower tiers
 * need them later. A copy is one allocation, pointers and all.
 */
#ifndef KVT_BLOCKS_H
#define KVT_BLOCKS_H

#include <stdbool.h>

#include "kvtier/kvtier.h"

/* Returns whether a caller can have meant these blocks. NULL is valid. */
bool kvt_blocks_valid(const struct kvt_blocks *blocks);

/* Bytes of the arrays; a copy of the blocks whose pointers go into `room`. tokens: includes the
 * token ids. */
size_t kvt_blocks_bytes(const struct kvt_blocks *blocks, bool tokens);
void kvt_blocks_pack(
	const struct kvt_blocks *blocks, bool tokens, void *room, struct kvt_blocks *out);

/* Copies to the heap, without token ids; free with free(). NULL: out of memory. */
struct kvt_blocks *kvt_blocks_copy(const struct kvt_blocks *blocks);

/* An item with all data that it points to, for the thread that stores it later. */
struct kvt_cargo {
	struct kvt_item item; /* points into this object */
	struct kvt_key parent;
	struct kvt_blocks blocks;
	uint32_t users; /* under the core's lock */
	/* Checksums of the bytes that were put, if a lower tier can use them; else NULL. */
	struct kvt_checksum *pieces, whole;
	uint64_t piece_bytes; /* length of each of `pieces` but the last */
};

struct kvt_cargo *kvt_cargo_make(const struct kvt_item *item);
void kvt_cargo_free(struct kvt_cargo *cargo); /* NULL is allowed */

#endif
