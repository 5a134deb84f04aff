/*
 * siphash.c - the reference algorithm, with the number of rounds as a parameter.
 *
 * It runs once per process on a dozen bytes (the text of a seed), so its code is written to be
 * clear rather than fast.
 */
#include "wire/siphash.h"

struct sip {
	uint64_t v0, v1, v2, v3;
};

static uint64_t rotate(uint64_t x, unsigned bits)
{
	return x << bits | x >> (64 - bits);
}

static void sip_rounds(struct sip *s, unsigned count)
{
	while (count-- > 0) {
		s->v0 += s->v1;
		s->v1 = rotate(s->v1, 13) ^ s->v0;
		s->v0 = rotate(s->v0, 32);
		s->v2 += s->v3;
		s->v3 = rotate(s->v3, 16) ^ s->v2;
		s->v0 += s->v3;
		s->v3 = rotate(s->v3, 21) ^ s->v0;
		s->v2 += s->v1;
		s->v1 = rotate(s->v1, 17) ^ s->v2;
		s->v2 = rotate(s->v2, 32);
	}
}

static void sip_word(struct sip *s, uint64_t word, unsigned rounds)
{
	s->v3 ^= word;
	sip_rounds(s, rounds);
	s->v0 ^= word;
}

/* Reads a little-endian number, also on big-endian machines. */
static uint64_t word_of(const uint8_t *bytes, size_t len)
{
	uint64_t word = 0;

	for (size_t i = 0; i < len; i++)
		word |= (uint64_t)bytes[i] << (8 * i);
	return word;
}

uint64_t kvw_siphash(
	enum kvw_siphash_variant variant, uint64_t k0, uint64_t k1, const void *data, size_t len)
{
	unsigned per_word = variant == KVW_SIPHASH_24 ? 2 : 1;
	unsigned at_end = variant == KVW_SIPHASH_24 ? 4 : 3;
	const uint8_t *bytes = data;
	size_t left = len;
	struct sip s = {
		.v0 = k0 ^ UINT64_C(0x736f6d6570736575),
		.v1 = k1 ^ UINT64_C(0x646f72616e646f6d),
		.v2 = k0 ^ UINT64_C(0x6c7967656e657261),
		.v3 = k1 ^ UINT64_C(0x7465646279746573),
	};

	for (; left >= 8; left -= 8, bytes += 8)
		sip_word(&s, word_of(bytes, 8), per_word);
	sip_word(&s, word_of(bytes, left) | (uint64_t)len << 56, per_word);
	s.v2 ^= 0xff;
	sip_rounds(&s, at_end);
	return s.v0 ^ s.v1 ^ s.v2 ^ s.v3;
}
