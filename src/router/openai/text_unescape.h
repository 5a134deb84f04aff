/*
 * text_unescape.h - decodes runs of \uXXXX with AVX2, eight at a time.
 *
 * Included by text_avx2.c and text_avx512.c before text_kernel.h, which calls KERNEL_UNESCAPE.
 */
#include <immintrin.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Loads two escapes, 12 bytes, into each half of a vector; as 32 bytes those at p and at p + 24. */
static inline __m256i load_escapes(const char *p)
{
	__m128i low = _mm_loadu_si128((const __m128i *)p);
	__m128i high = _mm_loadu_si128((const __m128i *)(p + 24));

	return _mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1);
}

/* Converts the 16 hex digits in each half to numbers 0 to 15; *valid: all bits are set in bytes
 * that were digits. */
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

/* Encodes eight code units as three UTF-8 bytes each: 12 bytes at the start of each half. */
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
 * Decodes runs of \uXXXX, eight at a time, whose characters have three bytes in UTF-8 (U+0800 to
 * U+FFFF without surrogates: all of Chinese, Japanese and Korean in the basic plane).
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
		count = __builtin_ctz(bad); /* not 0, since bits 8 to 31 are set */
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
static inline const char *unescape_all(struct kvw_text *text, const char *p, const char *end)
{
	for (;;) {
		p = unescape_run(text, p, end);
		if (text->fill < KVW_TEXT_CHUNK)
			return p;
		kvw_text_emit(text, XXH3_64bits(text->buffer, KVW_TEXT_CHUNK), KVW_TEXT_CHUNK);
		text->fill -= (uint32_t)KVW_TEXT_CHUNK;
		/* Writes up to 23 bytes behind the result, for which the buffer has room. */
		_mm256_storeu_si256((__m256i *)text->buffer,
			_mm256_loadu_si256((const __m256i *)(text->buffer + KVW_TEXT_CHUNK)));
	}
}
