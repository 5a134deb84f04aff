/*
 * lmcache_chunks.h - the chunk hashes of LMCache's multi-process mode, with its default algorithm.
 *
 *	h_0 = BLAKE3(eight zero bytes, the token 0)
 *	h_i = BLAKE3(h_{i-1}, the chunk's tokens, each as four bytes, most significant first)
 *
 * Neither model nor salt nor rank is part of a hash; LMCache's keys have them as members. Source:
 * LMCache 0.5.6, `lmcache server --hash-algorithm blake3`. Its other algorithms are those of vLLM.
 *
 * Pure, no allocation; a chain belongs to one thread.
 */
#ifndef KVW_LMCACHE_CHUNKS_H
#define KVW_LMCACHE_CHUNKS_H

#include "wire/blake3.h"

/* The chunks of one prompt. */
struct kvw_lmcache_chunks {
	uint8_t hash[KVW_BLAKE3_BYTES]; /* of the last chunk; h_0 before the first one */
};

void kvw_lmcache_chunks_start(struct kvw_lmcache_chunks *chunks);
/* chunks->hash becomes that of the next chunk. */
void kvw_lmcache_chunks_next(
	struct kvw_lmcache_chunks *chunks, const uint32_t *tokens, size_t count);

#endif
