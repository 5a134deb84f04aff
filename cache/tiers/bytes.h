/*
 * bytes.h - the common parts of the tiers' formats, byte by byte.
 *
 * Numbers are little-endian (protect/little_endian.h). Pure functions.
 */
#ifndef KVT_TIER_BYTES_H
#define KVT_TIER_BYTES_H

#include <stdbool.h>

#include "protect/little_endian.h"
#include "protect/seal.h"

#define KVT_BYTES_SEAL 40u

/* Bytes 16 to 32 of a block (low, high) have the XXH3-128 of the block, computed with zeros there; len >= 32, seed 0:
 * not seeded. The first function writes the sum, the second checks it. */
void kvt_bytes_stamp(uint8_t *block, size_t len, uint64_t seed);
bool kvt_bytes_prove(const uint8_t *block, size_t len, uint64_t seed);

/* Writes u32 format, u32 key id, u64 tenant key, u8[16] salt, u64 nonce: KVT_BYTES_SEAL bytes. */
void kvt_bytes_put_seal(uint8_t *to, const struct kvt_seal_header *seal);
void kvt_bytes_get_seal(const uint8_t *from, struct kvt_seal_header *seal);

/* Writes lowercase digits and a NUL; returns the NUL's address. */
char *kvt_bytes_put_hex(char *to, const uint8_t *bytes, size_t count);

#endif
