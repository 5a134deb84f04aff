/*
 * blocks.h - copies of what a caller says about a chunk besides its bytes.
 *
 * The engine's names are borrowed only while a put is called, but events about the chunk and the
 * tiers below need them later. A copy is one allocation, pointers and all.
 */
#ifndef KVT_BLOCKS_H
#define KVT_BLOCKS_H

#include <stdbool.h>

#include "kvtier/kvtier.h"

/* Can this be what a caller meant? NULL can. */
bool kvt_blocks_valid(const struct kvt_blocks *blocks);

/* Bytes that the arrays take, and a copy of them there; `out` then points into `room`. tokens:
 * with the token ids. */
size_t kvt_blocks_bytes(const struct kvt_blocks *blocks, bool tokens);
void kvt_blocks_pack(
	const struct kvt_blocks *blocks, bool tokens, void *room, struct kvt_blocks *out);

/* On the heap, without token ids; free with free(). NULL: out of memory. */
struct kvt_blocks *kvt_blocks_copy(const struct kvt_blocks *blocks);

/* An item with all that it points at, for the thread that stores it later. */
struct kvt_cargo {
	struct kvt_item item; /* points into this object */
	struct kvt_key parent;
	struct kvt_blocks blocks;
	uint32_t users; /* under the core's lock */
	/* Of the bytes that were put, where a tier below can use it; else NULL. */
	struct kvt_checksum *pieces, whole;
	uint64_t piece_bytes; /* of each of `pieces` but the last */
};

struct kvt_cargo *kvt_cargo_make(const struct kvt_item *item);
void kvt_cargo_free(struct kvt_cargo *cargo); /* NULL is allowed */

#endif
