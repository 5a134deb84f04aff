/*
 * value.h - the bytes of a fragment's chunk: a header, then keys and values of its tokens for each
 * layer.
 *
 * The header has the position and the kind of the keys, and travels with them under one checksum.
 * Numbers are in the machine's byte order, like the keys; the header's magic number shows another
 * order.
 */
#ifndef KVT_FRAGMENTS_VALUE_H
#define KVT_FRAGMENTS_VALUE_H

#include "fragments/rope.h"
#include "kvtier/kvtier_fragments.h"

#define KVT_FRAGMENT_MAGIC   0x317367617266766bu /* "kvfrags1" */
#define KVT_FRAGMENT_VERSION 1u

/* The form of a model's keys and values. A plain value. */
struct kvt_fragment_shape {
	uint32_t values; /* enum kvt_fragment_values */
	/* value_head 0: keys are latent, and there are no values */
	uint32_t layers, heads, head, value_head;
	/* hash of all settings on which the meaning of the bytes and the rotation of keys depend */
	uint8_t model[32];
};

/* The first bytes of a chunk. */
struct kvt_fragment_head {
	uint64_t magic;
	uint32_t version, tokens;
	uint64_t position; /* position of the chunk's first token when its keys were computed */
	uint64_t first;    /* number of that token within the fragment */
	uint32_t values, layers, heads, head, value_head;
	uint8_t model[32];
	uint8_t zero[44];
};
_Static_assert(sizeof(struct kvt_fragment_head) == 128, "a header is written as it is");

/* Returns the length of a chunk; 0: it would be above a chunk's limit (4 GiB less a byte), or there
 * are no tokens. */
uint64_t kvt_fragment_value_bytes(const struct kvt_fragment_shape *shape, uint32_t tokens);

/* Makes the header for `tokens` tokens of a fragment, from token number `first` on, computed at
 * `position`. */
void kvt_fragment_head_make(const struct kvt_fragment_shape *shape, uint32_t tokens, uint64_t first, uint64_t position,
	struct kvt_fragment_head *out);

/* Checks a header. KVT_FRAGMENT_REFUSALS means that it is right. */
enum kvt_fragment_refusal kvt_fragment_head_check(const struct kvt_fragment_head *head,
	const struct kvt_fragment_shape *shape, uint32_t tokens, uint64_t first);

/* Returns whether the blocks of `place` have room for `tokens` tokens, and its planes have an
 * address for each layer. */
bool kvt_fragment_place_fits(const struct kvt_fragment_place *place, const struct kvt_fragment_shape *shape, size_t tokens);

/* Where a chunk's bytes are: segments of kvt_fragment_value_bytes in all, each aligned to 64
 * bytes. */
struct kvt_fragment_bytes {
	const struct kvt_segment *segments;
	size_t count;
};

/* Fills a chunk, including its header, with tokens from `place`; the first token is number `offset`
 * after slot. */
void kvt_fragment_pack(const struct kvt_fragment_shape *shape, const struct kvt_fragment_head *head,
	const struct kvt_fragment_place *place, uint64_t offset, const struct kvt_fragment_bytes *to);

/* Puts tokens [skip, end) of a chunk's `tokens` into `place`; the first token is number `offset`
 * after slot. turn NULL: keys stay unchanged. Returns the bytes of keys that were turned. */
uint64_t kvt_fragment_unpack(const struct kvt_fragment_shape *shape, const struct kvt_rope_turn *turn, uint32_t tokens,
	uint32_t skip, uint32_t end, const struct kvt_fragment_place *place, uint64_t offset,
	const struct kvt_fragment_bytes *from);

#endif
