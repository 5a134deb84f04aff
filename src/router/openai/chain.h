/*
 * chain.h - combines the hashes of pieces into a hash of the whole.
 *
 * Pieces (chunks of text, keys, names) are hashed with XXH3-64; one 64 by 64 bit multiplication,
 * whose halves are XORed, combines two hashes, as inside XXH3. That costs a fifth of an XXH3 call,
 * and a prompt of 256 KB needs a thousand of them.
 *
 * Every fold begins with a tag, so that a text can never equal a tool, or the end of one message
 * the beginning of the next. All replicas of the router must compute the same hashes: raise
 * KVW_CHAIN_VERSION with any change in this file.
 */
#ifndef KVW_CHAIN_H
#define KVW_CHAIN_H

#include <stdint.h>

#define KVW_CHAIN_VERSION UINT64_C(1)

/* Tags: the first member of a fold. The values are arbitrary odd numbers. */
#define KVW_TAG_SEED      UINT64_C(0x6b767761792d7331)
#define KVW_TAG_TEXT      UINT64_C(0x9e3779b97f4a7c15) /* a prompt as given */
/* a conversation that goes through a chat template */
#define KVW_TAG_TALK      UINT64_C(0xbf58476d1ce4e5b9)
#define KVW_TAG_TOOLS     UINT64_C(0x94d049bb133111eb)
#define KVW_TAG_FUNCTIONS UINT64_C(0xd6e8feb86659fd93)
#define KVW_TAG_MESSAGE   UINT64_C(0xa0761d6478bd642f)
#define KVW_TAG_PART      UINT64_C(0xe7037ed1a0b428db)
#define KVW_TAG_STRING    UINT64_C(0x8ebc6af09c88c6e3)
#define KVW_TAG_NUMBER    UINT64_C(0x589965cc75374cc3)
#define KVW_TAG_OBJECT    UINT64_C(0x1d8e4e27c47d124f)
#define KVW_TAG_ARRAY     UINT64_C(0xeb44accab455d165)
#define KVW_TAG_NULL      UINT64_C(0x2f7d1e5c9a3b6847)
#define KVW_TAG_TRUE      UINT64_C(0x4c1b2a9d3e5f7061)
#define KVW_TAG_FALSE     UINT64_C(0x7a8b9cadbecfd0e3)

/* Assumed units of text that a chat template adds around a message: some four tokens. */
#define KVW_MESSAGE_UNITS 16u
/* Assumed units of an image, audio or file, whatever the length of its data. */
#define KVW_MEDIA_UNITS 16u

/* XORed with the two operands of kvw_mix. */
#define KVW_MIX_FIRST  UINT64_C(0x2d358dccaa6c78a5)
#define KVW_MIX_SECOND UINT64_C(0x8bb84b93962eacc9)

/* Does the same as kvw_mix for a chain whose hash is kept XORed with KVW_MIX_FIRST between links.
 * In a long chain each link waits for the one before, and this saves an instruction per link. */
static inline uint64_t kvw_mix_on(uint64_t changed, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)changed * (b ^ KVW_MIX_SECOND);
	uint64_t low = (uint64_t)product ^ KVW_MIX_FIRST;

	__asm__("" : "+r"(low)); /* the processor has the low half first */
	return low ^ (uint64_t)(product >> 64);
}

/* Returns the hash of `a` followed by `b`. Not commutative. */
static inline uint64_t kvw_mix(uint64_t a, uint64_t b)
{
	return kvw_mix_on(a ^ KVW_MIX_FIRST, b) ^ KVW_MIX_FIRST;
}

#endif
