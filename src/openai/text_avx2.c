/*
 * text_avx2.c - the inner loops over prompt text with AVX2, compiled with -mavx2 -mbmi -mbmi2 and
 * called only where the processor has them.
 */
#include <immintrin.h>

#include "text.h"

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

/* Bytes that are 0 where v is special. */
static inline __m256i zero_if_special(__m256i v)
{
	const __m256i quote = _mm256_set1_epi8('"'), backslash = _mm256_set1_epi8('\\');
	const __m256i control = _mm256_set1_epi8(0x1f);

	return _mm256_min_epu8(
		_mm256_min_epu8(_mm256_xor_si256(v, quote), _mm256_xor_si256(v, backslash)),
		_mm256_subs_epu8(v, control));
}

static inline bool ordinary(const char *p)
{
	__m256i least = _mm256_set1_epi8(-1);

	for (int i = 0; i < 8; i++)
		least = _mm256_min_epu8(least,
			zero_if_special(_mm256_loadu_si256((const __m256i *)(p + 32 * i))));
	return _mm256_movemask_epi8(_mm256_cmpeq_epi8(least, _mm256_setzero_si256())) == 0;
}

/* A byte is in the set when its low and its high half agree on a bit: 1 for 2x, 2 for 5x, 4, 8. */
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

/* Two escapes, 12 bytes, per half: as a 32-byte vector those at p and at p + 24. */
static inline __m256i load_escapes(const char *p)
{
	__m128i low = _mm_loadu_si128((const __m128i *)p);
	__m128i high = _mm_loadu_si128((const __m128i *)(p + 24));

	return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/* The 16 hex digits of each half as numbers 0 to 15; *valid: all ones in bytes that were digits. */
static inline __m256i hex_values(__m256i digits, __m256i *valid)
{
	__m256i number = _mm256_sub_epi8(digits, _mm256_set1_epi8('0'));
	__m256i letter = _mm256_sub_epi8(
		_mm256_or_si256(digits, _mm256_set1_epi8(0x20)), _mm256_set1_epi8('a'));
	__m256i is_number = _mm256_cmpeq_epi8(_mm256_min_epu8(number, _mm256_set1_epi8(9)), number);
	__m256i is_letter = _mm256_cmpeq_epi8(_mm256_min_epu8(letter, _mm256_set1_epi8(5)), letter);

	*valid = _mm256_or_si256(is_number, is_letter);
	return _mm256_blendv_epi8(_mm256_add_epi8(letter, _mm256_set1_epi8(10)), number, is_number);
}

/* Eight code units, each of three UTF-8 bytes, as such: 12 bytes in front of each half. */
static inline __m256i three_bytes(__m256i unit)
{
	const __m256i six = _mm256_set1_epi32(0x3f);
	const __m256i pack = _mm256_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1,
		-1, 0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1);
	__m256i first = _mm256_srli_epi32(unit, 12);
	__m256i second = _mm256_and_si256(_mm256_srli_epi32(unit, 6), six);
	__m256i third = _mm256_and_si256(unit, six);
	__m256i bytes = _mm256_or_si256(
		first, _mm256_or_si256(_mm256_slli_epi32(second, 8), _mm256_slli_epi32(third, 16)));

	bytes = _mm256_or_si256(bytes, _mm256_set1_epi32(0x8080e0));
	return _mm256_shuffle_epi8(bytes, pack);
}

/*
 * Decodes runs of \uXXXX that stand for three bytes of UTF-8 each (U+0800 to U+FFFF without
 * surrogates: all of Chinese, Japanese and Korean that is in the basic plane), eight at a time.
 */
static inline const char *unescape_run(struct kvw_text *text, const char *p, const char *end)
{
	const __m256i digits_of_first = _mm256_setr_epi8(2, 3, 4, 5, 8, 9, 10, 11, -1, -1, -1, -1,
		-1, -1, -1, -1, 2, 3, 4, 5, 8, 9, 10, 11, -1, -1, -1, -1, -1, -1, -1, -1);
	const __m256i digits_of_second = _mm256_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, 2, 3, 4,
		5, 8, 9, 10, 11, -1, -1, -1, -1, -1, -1, -1, -1, 2, 3, 4, 5, 8, 9, 10, 11);
	const __m256i lead_of_first = _mm256_setr_epi8(0, 1, 0, 1, 6, 7, 6, 7, -1, -1, -1, -1, -1,
		-1, -1, -1, 0, 1, 0, 1, 6, 7, 6, 7, -1, -1, -1, -1, -1, -1, -1, -1);
	const __m256i lead_of_second = _mm256_setr_epi8(-1, -1, -1, -1, -1, -1, -1, -1, 0, 1, 0, 1,
		6, 7, 6, 7, -1, -1, -1, -1, -1, -1, -1, -1, 0, 1, 0, 1, 6, 7, 6, 7);
	const __m256i top = _mm256_set1_epi32(0xf800);

	while (end - p >= 52 && text->mode != KVW_TEXT_NOTHING) {
		__m256i first = load_escapes(p), second = load_escapes(p + 12);
		__m256i lead = _mm256_or_si256(_mm256_shuffle_epi8(first, lead_of_first),
			_mm256_shuffle_epi8(second, lead_of_second));
		__m256i valid, unit, good, utf8, plane;
		unsigned bad;
		int count;

		unit = hex_values(_mm256_or_si256(_mm256_shuffle_epi8(first, digits_of_first),
					  _mm256_shuffle_epi8(second, digits_of_second)),
			&valid);
		unit = _mm256_maddubs_epi16(unit, _mm256_set1_epi16(0x0110));
		unit = _mm256_madd_epi16(unit, _mm256_set1_epi32(0x00010100));
		plane = _mm256_and_si256(unit, top);
		good = _mm256_and_si256(_mm256_cmpeq_epi32(lead, _mm256_set1_epi32(0x755c755c)),
			_mm256_cmpeq_epi32(valid, _mm256_set1_epi32(-1)));
		good = _mm256_andnot_si256(
			_mm256_or_si256(_mm256_cmpeq_epi32(plane, _mm256_setzero_si256()),
				_mm256_cmpeq_epi32(plane, _mm256_set1_epi32(0xd800))),
			good);
		bad = ~(unsigned)_mm256_movemask_ps(_mm256_castsi256_ps(good));
		count = __builtin_ctz(bad); /* bits 8 to 31 are set */
		utf8 = three_bytes(unit);
		_mm_storeu_si128(
			(__m128i *)(text->buffer + text->fill), _mm256_castsi256_si128(utf8));
		_mm_storeu_si128((__m128i *)(text->buffer + text->fill + 12),
			_mm256_extracti128_si256(utf8, 1));
		text->fill += 3 * (uint32_t)count;
		p += 6 * count;
		if (text->fill >= KVW_TEXT_CHUNK)
			break;
		if (count < 8)
			return p;
	}
	return p;
}

#define KERNEL_UNESCAPE unescape_all
static const char *unescape_all(struct kvw_text *text, const char *p, const char *end);

#include "text_kernel.h"

static const char *unescape_all(struct kvw_text *text, const char *p, const char *end)
{
	for (;;) {
		p = unescape_run(text, p, end);
		if (text->fill < KVW_TEXT_CHUNK)
			return p;
		kernel_emit(text, XXH3_64bits(text->buffer, KVW_TEXT_CHUNK), KVW_TEXT_CHUNK);
		text->fill -= (uint32_t)KVW_TEXT_CHUNK;
		/* More than is left: at most 23 bytes. */
		_mm256_storeu_si256((__m256i *)text->buffer,
			_mm256_loadu_si256((const __m256i *)(text->buffer + KVW_TEXT_CHUNK)));
	}
}

const struct kvw_text_ops kvw_text_avx2 = {kernel_run, kernel_ids, "avx2"};
