/*
 * text_avx2.c - the inner loops over prompt text with AVX2, compiled with -mavx2 -mbmi -mbmi2 and
 * called only where the processor has them.
 */
#include <immintrin.h>

#include "openai/chunk_hash.h"
#include "openai/text.h"
#include "openai/text_unescape.h"

struct block {
	__m256i low, high;
};

static inline struct block load(const char *p)
{
	return (struct block){_mm256_loadu_si256((const __m256i *)p),
		_mm256_loadu_si256((const __m256i *)(p + 32))};
}

static inline uint64_t bits(__m256i low, __m256i high)
{
	return (uint32_t)_mm256_movemask_epi8(low) | (uint64_t)(uint32_t)_mm256_movemask_epi8(high)
							     << 32;
}

static inline uint64_t backslashes(const struct block *block)
{
	const __m256i backslash = _mm256_set1_epi8('\\');

	return bits(_mm256_cmpeq_epi8(block->low, backslash),
		_mm256_cmpeq_epi8(block->high, backslash));
}

static inline __m256i stop_bytes(__m256i v)
{
	const __m256i quote = _mm256_set1_epi8('"'), control = _mm256_set1_epi8(0x1f);

	return _mm256_or_si256(
		_mm256_cmpeq_epi8(v, quote), _mm256_cmpeq_epi8(_mm256_min_epu8(v, control), v));
}

static inline uint64_t stops(const struct block *block)
{
	return bits(stop_bytes(block->low), stop_bytes(block->high));
}

/* Returns whether each byte equals `"` or `\\`: each is compared with the one of them that has the
 * same low four bits. A byte whose low bits are those of neither is compared with 0, which only a
 * control character equals. */
static inline __m256i special_bytes(__m256i v)
{
	const __m256i by_low = _mm256_setr_epi8(0, 0, '"', 0, 0, 0, 0, 0, 0, 0, 0, 0, '\\', 0, 0, 0,
		0, 0, '"', 0, 0, 0, 0, 0, 0, 0, 0, 0, '\\', 0, 0, 0);
	const __m256i control = _mm256_set1_epi8(0x1f);

	return _mm256_or_si256(_mm256_cmpeq_epi8(_mm256_shuffle_epi8(by_low, v), v),
		_mm256_cmpeq_epi8(_mm256_min_epu8(v, control), v));
}

static inline bool has_special(const struct block *block)
{
	return _mm256_movemask_epi8(
		       _mm256_or_si256(special_bytes(block->low), special_bytes(block->high))) != 0;
}

/* Finds the bytes that make a short escape. Classes of bytes by their high four bits (2x, 5x, 6x,
 * 7x) have the bits 1, 2, 4 and 8: a byte is in the set when the table of low halves and that of
 * high halves share a bit. */
static inline __m256i short_escape_bytes(__m256i v)
{
	const __m256i by_low = _mm256_setr_epi8(0, 0, 1 | 4 | 8, 0, 8, 0, 4, 0, 0, 0, 0, 0, 2, 0, 4,
		0, 0, 0, 1 | 4 | 8, 0, 8, 0, 4, 0, 0, 0, 0, 0, 2, 0, 4, 0);
	const __m256i by_high = _mm256_setr_epi8(0, 0, 1, 0, 0, 2, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0, 1, 0, 0, 2, 4, 8, 0, 0, 0, 0, 0, 0, 0, 0);
	const __m256i half = _mm256_set1_epi8(0x0f);
	__m256i low = _mm256_shuffle_epi8(by_low, _mm256_and_si256(v, half));
	__m256i high =
		_mm256_shuffle_epi8(by_high, _mm256_and_si256(_mm256_srli_epi16(v, 4), half));

	return _mm256_cmpgt_epi8(_mm256_and_si256(low, high), _mm256_setzero_si256());
}

static inline uint64_t short_escapes(const struct block *block)
{
	return bits(short_escape_bytes(block->low), short_escape_bytes(block->high));
}

static inline __m256i digit_bytes(__m256i v)
{
	__m256i digit = _mm256_sub_epi8(v, _mm256_set1_epi8('0'));

	return _mm256_cmpeq_epi8(_mm256_min_epu8(digit, _mm256_set1_epi8(9)), digit);
}

static inline void id_masks(
	const struct block *block, uint64_t *digits, uint64_t *commas, uint64_t *spaces)
{
	const __m256i comma = _mm256_set1_epi8(','), space = _mm256_set1_epi8(' ');

	*digits = bits(digit_bytes(block->low), digit_bytes(block->high));
	*commas = bits(_mm256_cmpeq_epi8(block->low, comma), _mm256_cmpeq_epi8(block->high, comma));
	*spaces = bits(_mm256_cmpeq_epi8(block->low, space), _mm256_cmpeq_epi8(block->high, space));
}

/* Four of XXH3's eight lanes in each register: 0 to 3 and 4 to 7. */
struct chunk_hash {
	__m256i low, high;
};

static inline struct chunk_hash chunk_hash_begin(void)
{
	return (struct chunk_hash){_mm256_load_si256((const __m256i *)(const void *)chunk_lanes),
		_mm256_load_si256((const __m256i *)(const void *)(chunk_lanes + 4))};
}

static inline __m256i chunk_hash_lanes(__m256i lanes, __m256i data, const unsigned char *secret)
{
	__m256i key =
		_mm256_xor_si256(data, _mm256_loadu_si256((const __m256i *)(const void *)secret));
	__m256i product = _mm256_mul_epu32(key, _mm256_srli_epi64(key, 32));
	__m256i swapped = _mm256_shuffle_epi32(data, _MM_SHUFFLE(1, 0, 3, 2));

	return _mm256_add_epi64(_mm256_add_epi64(lanes, swapped), product);
}

static inline void chunk_hash_add(
	struct chunk_hash *hash, const struct block *block, const unsigned char *secret)
{
	hash->low = chunk_hash_lanes(hash->low, block->low, secret);
	hash->high = chunk_hash_lanes(hash->high, block->high, secret + 32);
}

static inline void keep_half(uint64_t *lanes, __m256i half, const unsigned char *secret)
{
	half = _mm256_xor_si256(half, _mm256_loadu_si256((const __m256i *)(const void *)secret));
	_mm256_store_si256((__m256i *)(void *)lanes, half);
}

static inline void chunk_hash_keep(const struct chunk_hash *hash, uint64_t lanes[8])
{
	keep_half(lanes, hash->low, chunk_secret + CHUNK_MERGE_SECRET);
	keep_half(lanes + 4, hash->high, chunk_secret + CHUNK_MERGE_SECRET + 32);
}

#define KERNEL_HASHES
#include "openai/text_kernel.h"

const struct kvw_text_ops kvw_text_avx2 = {kernel_run, kernel_ids, "avx2"};
