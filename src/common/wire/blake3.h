/*
 * blake3.h - BLAKE3 without a key, with a digest of 32 bytes (O'Connor, Aumasson, Neves,
 * Wilcox-O'Hearn: "BLAKE3, one function, fast everywhere", 2020).
 *
 * LMCache names chunks by it. No distribution that kvway supports packages its library. Portable
 * code without SIMD: some 400 MB/s. Pure, no allocation; a state belongs to one thread.
 */
#ifndef KVW_BLAKE3_H
#define KVW_BLAKE3_H

#include <stddef.h>
#include <stdint.h>

#define KVW_BLAKE3_BYTES 32u

/* Private; begun by kvw_blake3_start. */
struct kvw_blake3 {
	uint32_t chain[8];         /* of the chunk that is being hashed */
	uint64_t chunk;            /* its number */
	uint8_t block[64];         /* bytes that are not compressed yet */
	uint8_t block_len, blocks; /* blocks: of the chunk, compressed */
	uint8_t depth;
	uint32_t stack[54][8]; /* roots of complete subtrees, of falling size */
};

void kvw_blake3_start(struct kvw_blake3 *state);
void kvw_blake3_put(struct kvw_blake3 *state, const void *data, size_t len);
/* Writes the digest of all bytes since the start. The state may go on. */
void kvw_blake3_finish(const struct kvw_blake3 *state, uint8_t digest[KVW_BLAKE3_BYTES]);

#endif
