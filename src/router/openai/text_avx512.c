/*
 * text_avx512.c - the inner loops over prompt text with AVX-512 (F, BW, VL), compiled for it and
 * called only where the processor and the system have it.
 *
 * A block of 64 bytes is one register and a comparison gives its 64 bits at once, which takes a
 * third of the instructions that AVX2 needs.
 */
#include <immintrin.h>

#include "openai/chunk_hash.h"
#include "openai/text.h"
#include "openai/text_unescape.h"

struct block {
	__m512i bytes;
};

static inline struct block load(const char *p)
{
	return (struct block){_mm512_loadu_si512(p)};
}

static inline uint64_t stops(const struct block *block)
{
	return _mm512_cmpeq_epi8_mask(block->bytes, _mm512_set1_epi8('"')) |
	       _mm512_cmplt_epu8_mask(block->bytes, _mm512_set1_epi8(' '));
}

/* Hides a constant from the compiler, which would otherwise compute it again for each block, on the
 * same execution port as the comparisons. */
static inline __m512i held(__m512i v)
{
	__asm__("" : "+v"(v));
	return v;
}

static inline uint64_t backslashes(const struct block *block)
{
	return _mm512_cmpeq_epi8_mask(block->bytes, _mm512_set1_epi8('\\'));
}

/* Returns whether any byte is `"`, `\` or a control character. Each byte is compared with the one
 * of `"` and `\` that has the same low four bits; other low bits select 0, which only equals a
 * control character. */
static inline bool has_special(const struct block *block)
{
	const __m512i by_low = held(_mm512_broadcast_i32x4(
		_mm_setr_epi8(0, 0, '"', 0, 0, 0, 0, 0, 0, 0, 0, 0, '\\', 0, 0, 0)));
	const __m512i space = held(_mm512_set1_epi8(' '));

	__mmask64 named =
		_mm512_cmpeq_epi8_mask(block->bytes, _mm512_shuffle_epi8(by_low, block->bytes));
	__mmask64 control = _mm512_cmplt_epu8_mask(block->bytes, space);

	return !_kortestz_mask64_u8(named, control);
}

/* Finds the bytes that make a short escape. Classes of bytes by their high four bits (2x, 5x, 6x,
 * 7x) have the bits 1, 2, 4 and 8: a byte is in the set when the table of low halves and that of
 * high halves share a bit. */
static inline uint64_t short_escapes(const struct block *block)
{
	const __m512i by_low = _mm512_broadcast_i32x4(
		_mm_setr_epi8(0, 0, 1 | 4 | 8, 0, 8, 0, 4, 0, 0, 0, 0, 0, 2, 0, 4, 0));
	const __m512i by_high = _mm512_broadcast_i32x4(
		_mm_setr_epi8(0, 0, 1, 0, 0, 2, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0));
	const __m512i half = _mm512_set1_epi8(0x0f);
	__m512i low = _mm512_shuffle_epi8(by_low, _mm512_and_si512(block->bytes, half));
	__m512i high = _mm512_shuffle_epi8(
		by_high, _mm512_and_si512(_mm512_srli_epi16(block->bytes, 4), half));

	return _mm512_test_epi8_mask(low, high);
}

static inline void id_masks(
	const struct block *block, uint64_t *digits, uint64_t *commas, uint64_t *spaces)
{
	*digits = _mm512_cmple_epu8_mask(
		_mm512_sub_epi8(block->bytes, _mm512_set1_epi8('0')), _mm512_set1_epi8(9));
	*commas = _mm512_cmpeq_epi8_mask(block->bytes, _mm512_set1_epi8(','));
	*spaces = _mm512_cmpeq_epi8_mask(block->bytes, _mm512_set1_epi8(' '));
}

/* XXH3's eight lanes. */
struct chunk_hash {
	__m512i lanes;
};

static inline struct chunk_hash chunk_hash_begin(void)
{
	return (struct chunk_hash){_mm512_load_si512(chunk_lanes)};
}

static inline void chunk_hash_add(
	struct chunk_hash *hash, const struct block *block, const unsigned char *secret)
{
	__m512i key = _mm512_xor_si512(block->bytes, _mm512_loadu_si512(secret));
	__m512i product = _mm512_mul_epu32(key, _mm512_srli_epi64(key, 32));
	__m512i swapped = _mm512_shuffle_epi32(block->bytes, _MM_PERM_BADC);

	hash->lanes = _mm512_add_epi64(_mm512_add_epi64(hash->lanes, swapped), product);
}

static inline void chunk_hash_keep(const struct chunk_hash *hash, uint64_t lanes[8])
{
	_mm512_store_si512(lanes, _mm512_xor_si512(hash->lanes,
					  _mm512_loadu_si512(chunk_secret + CHUNK_MERGE_SECRET)));
}

#define KERNEL_HASHES
#include "openai/text_kernel.h"

const struct kvw_text_ops kvw_text_avx512 = {kernel_run, kernel_ids, "avx512"};
