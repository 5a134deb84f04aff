/*
 * blake3.c - see blake3.h.
 *
 * The input is cut into chunks of 1,024 bytes, each a chain of up to 16 blocks. Chunks are the
 * leaves of a binary tree, whose left subtrees are complete; a node compresses the chaining values
 * of its two children. The last compression, of the only chunk or of the topmost node, is the root.
 */
#include "wire/blake3.h"

#include <string.h>

#define BLOCK        64u
#define CHUNK_BLOCKS 16u

enum { CHUNK_START = 1, CHUNK_END = 2, PARENT = 4, ROOT = 8 };

static const uint32_t iv[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f,
	0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

static uint32_t rotate(uint32_t word, int by)
{
	return word >> by | word << (32 - by);
}

static void mix(uint32_t v[16], int a, int b, int c, int d, uint32_t x, uint32_t y)
{
	v[a] += v[b] + x;
	v[d] = rotate(v[d] ^ v[a], 16);
	v[c] += v[d];
	v[b] = rotate(v[b] ^ v[c], 12);
	v[a] += v[b] + y;
	v[d] = rotate(v[d] ^ v[a], 8);
	v[c] += v[d];
	v[b] = rotate(v[b] ^ v[c], 7);
}

static void do_round(uint32_t v[16], const uint32_t m[16])
{
	mix(v, 0, 4, 8, 12, m[0], m[1]);
	mix(v, 1, 5, 9, 13, m[2], m[3]);
	mix(v, 2, 6, 10, 14, m[4], m[5]);
	mix(v, 3, 7, 11, 15, m[6], m[7]);
	mix(v, 0, 5, 10, 15, m[8], m[9]);
	mix(v, 1, 6, 11, 12, m[10], m[11]);
	mix(v, 2, 7, 8, 13, m[12], m[13]);
	mix(v, 3, 4, 9, 14, m[14], m[15]);
}

/* Compresses a block into the chaining value. */
static void compress(
	uint32_t chain[8], const uint32_t words[16], uint64_t counter, uint32_t len, uint32_t flags)
{
	static const uint8_t order[16] = {2, 6, 3, 10, 7, 0, 4, 13, 1, 11, 12, 5, 9, 14, 15, 8};
	uint32_t v[16], m[16], next[16];

	memcpy(v, chain, 32);
	memcpy(v + 8, iv, 16);
	v[12] = (uint32_t)counter;
	v[13] = (uint32_t)(counter >> 32);
	v[14] = len;
	v[15] = flags;
	memcpy(m, words, sizeof(m));
	for (int round = 0; round < 7; round++) {
		do_round(v, m);
		for (int i = 0; i < 16; i++)
			next[i] = m[order[i]];
		memcpy(m, next, sizeof(m));
	}
	for (int i = 0; i < 8; i++)
		chain[i] = v[i] ^ v[i + 8];
}

static void read_words(uint32_t words[16], const uint8_t block[BLOCK])
{
	for (int i = 0; i < 16; i++, block += 4)
		words[i] = (uint32_t)block[0] | (uint32_t)block[1] << 8 | (uint32_t)block[2] << 16 |
			   (uint32_t)block[3] << 24;
}

/* Compresses the block that the state holds. */
static void take_block(const struct kvw_blake3 *state, uint32_t chain[8], uint32_t flags)
{
	uint32_t words[16];

	read_words(words, state->block);
	compress(chain, words, state->chunk, state->block_len,
		flags | (state->blocks == 0 ? CHUNK_START : 0));
}

/* right becomes the chaining value of the node over left and right. */
static void join(const uint32_t left[8], uint32_t right[8], uint32_t flags)
{
	uint32_t words[16];

	memcpy(words, left, 32);
	memcpy(words + 8, right, 32);
	memcpy(right, iv, 32);
	compress(right, words, 0, BLOCK, flags | PARENT);
}

static void begin_chunk(struct kvw_blake3 *state)
{
	memcpy(state->chain, iv, sizeof(iv));
	state->blocks = state->block_len = 0;
	memset(state->block, 0, sizeof(state->block));
}

/* More input follows the chunk, so none of the nodes that it completes is the root. */
static void end_chunk(struct kvw_blake3 *state)
{
	take_block(state, state->chain, CHUNK_END);
	state->chunk++;
	for (uint64_t left = state->chunk; left % 2 == 0; left /= 2)
		join(state->stack[--state->depth], state->chain, 0);
	memcpy(state->stack[state->depth++], state->chain, 32);
	begin_chunk(state);
}

void kvw_blake3_start(struct kvw_blake3 *state)
{
	state->chunk = 0;
	state->depth = 0;
	begin_chunk(state);
}

void kvw_blake3_put(struct kvw_blake3 *state, const void *data, size_t len)
{
	const uint8_t *at = data;

	while (len > 0) {
		size_t room = BLOCK - state->block_len;

		if (room == 0 && state->blocks == CHUNK_BLOCKS - 1) {
			end_chunk(state);
			continue;
		}
		if (room == 0) {
			take_block(state, state->chain, 0);
			state->blocks++;
			state->block_len = 0;
			memset(state->block, 0, sizeof(state->block));
			continue;
		}
		room = room < len ? room : len;
		memcpy(state->block + state->block_len, at, room);
		state->block_len = (uint8_t)(state->block_len + room);
		at += room;
		len -= room;
	}
}

void kvw_blake3_finish(const struct kvw_blake3 *state, uint8_t digest[KVW_BLAKE3_BYTES])
{
	uint32_t chain[8];

	memcpy(chain, state->chain, sizeof(chain));
	take_block(state, chain, CHUNK_END | (state->depth == 0 ? ROOT : 0));
	for (uint8_t i = state->depth; i-- > 0;)
		join(state->stack[i], chain, i == 0 ? ROOT : 0);
	for (int i = 0; i < 8; i++)
		for (int byte = 0; byte < 4; byte++)
			digest[4 * i + byte] = (uint8_t)(chain[i] >> (8 * byte));
}
