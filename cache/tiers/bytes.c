/*
 * bytes.c - checksums inside blocks, headers of seals, and hexadecimal text. bytes.h gives each
 * byte's place.
 */
#include <string.h>
/* the caller keeps the hash's state on the stack, with the required alignment */
#define XXH_STATIC_LINKING_ONLY
#include <xxhash.h>

#include "tiers/bytes.h"

static XXH128_hash_t sum_of(const uint8_t *block, size_t len, uint64_t seed)
{
	static const uint8_t zero[16];
	XXH3_state_t state;

	XXH3_INITSTATE(&state);
	(void)XXH3_128bits_reset_withSeed(&state, seed);
	(void)XXH3_128bits_update(&state, block, 16);
	(void)XXH3_128bits_update(&state, zero, sizeof(zero));
	(void)XXH3_128bits_update(&state, block + 32, len - 32);
	return XXH3_128bits_digest(&state);
}

void kvt_bytes_stamp(uint8_t *block, size_t len, uint64_t seed)
{
	XXH128_hash_t sum = sum_of(block, len, seed);

	kvt_put64(block + 16, sum.low64);
	kvt_put64(block + 24, sum.high64);
}

bool kvt_bytes_prove(const uint8_t *block, size_t len, uint64_t seed)
{
	XXH128_hash_t sum = sum_of(block, len, seed);

	return kvt_get64(block + 16) == sum.low64 && kvt_get64(block + 24) == sum.high64;
}

void kvt_bytes_put_seal(uint8_t *to, const struct kvt_seal_header *seal)
{
	kvt_put32(to, seal->format);
	kvt_put32(to + 4, seal->key_id);
	kvt_put64(to + 8, seal->tenant_key_id);
	memcpy(to + 16, seal->salt, sizeof(seal->salt));
	kvt_put64(to + 32, seal->first_nonce);
}

void kvt_bytes_get_seal(const uint8_t *from, struct kvt_seal_header *seal)
{
	seal->format = kvt_get32(from);
	seal->key_id = kvt_get32(from + 4);
	seal->tenant_key_id = kvt_get64(from + 8);
	memcpy(seal->salt, from + 16, sizeof(seal->salt));
	seal->first_nonce = kvt_get64(from + 32);
}

char *kvt_bytes_put_hex(char *to, const uint8_t *bytes, size_t count)
{
	static const char digits[] = "0123456789abcdef";

	for (size_t i = 0; i < count; i++) {
		*to++ = digits[bytes[i] >> 4];
		*to++ = digits[bytes[i] & 15];
	}
	*to = '\0';
	return to;
}
