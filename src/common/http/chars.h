/*
 * chars.h - byte classes of HTTP's grammar, and scans that stop at the first byte outside one.
 *
 * Inside src/common/http only. The scans test 16 bytes at a time with SSE2 (every x86-64), else 8
 * in a general register; they test the last few bytes one by one, so they never read past the end.
 */
#ifndef KVW_HTTP_CHARS_H
#define KVW_HTTP_CHARS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Bits of kvw_char_class[]. */
enum kvw_char_bits {
	KVW_CHAR_TOKEN = 1, /* tchar, RFC 9110 section 5.6.2 */
	/* character of a reg-name or IPv4 address, without the comma (RFC 3986 3.2.2) */
	KVW_CHAR_HOST = 2,
	KVW_CHAR_HEX = 4,
	KVW_CHAR_VALUE = 8, /* character of a field value: HTAB, SP, visible ASCII, obs-text */
};

extern const uint8_t kvw_char_class[256];

static inline bool kvw_char_is(char c, enum kvw_char_bits bits)
{
	return (kvw_char_class[(uint8_t)c] & bits) != 0;
}

static inline bool kvw_char_is_digit(char c)
{
	return (uint8_t)(c - '0') <= 9;
}

/* Returns the value of a hex digit, 0 to 15; c must be KVW_CHAR_HEX. */
static inline unsigned kvw_char_hex(char c)
{
	return c <= '9' ? (unsigned)(c - '0') : (unsigned)((c | 0x20) - 'a') + 10;
}

/*
 * Returns whether name[0..n) equals lower[0..n) without regard to case. name must have token bytes
 * only, and lower only lower-case letters and '-': setting bit 5 turns no token byte but the
 * capital letter into one of these, so no table is needed. Cheap if n is a constant.
 */
static inline __attribute__((always_inline)) bool kvw_token_is(
	const char *name, const char *lower, size_t n)
{
	uint64_t a, b, diff = 0;

	if (n < 8) {
		for (size_t i = 0; i < n; i++)
			diff |= (uint64_t)((uint8_t)name[i] | 0x20) ^ (uint8_t)lower[i];
		return diff == 0;
	}
	for (size_t i = 0; i < n; i += 8) {
		/* the last eight bytes may overlap those that are compared already */
		size_t at = i + 8 <= n ? i : n - 8;

		memcpy(&a, name + at, 8);
		memcpy(&b, lower + at, 8);
		diff |= (a | UINT64_C(0x2020202020202020)) ^ b;
	}
	return diff == 0;
}

/* Returns the first byte in [p, end) that no field value may contain, such as a line end; `end` if
 * there is none. */
static inline const char *kvw_scan_value(const char *p, const char *end)
{
#ifdef __SSE2__
	const __m128i last_control = _mm_set1_epi8(0x1f), tab = _mm_set1_epi8('\t');
	const __m128i del = _mm_set1_epi8(0x7f);

	for (; end - p >= 16; p += 16) {
		__m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
		__m128i low = _mm_cmpeq_epi8(_mm_min_epu8(x, last_control), x);
		__m128i bad = _mm_or_si128(
			_mm_andnot_si128(_mm_cmpeq_epi8(x, tab), low), _mm_cmpeq_epi8(x, del));
		int mask = _mm_movemask_epi8(bad);

		if (mask != 0)
			return p + __builtin_ctz((unsigned)mask);
	}
#endif
	while (p < end && kvw_char_is(*p, KVW_CHAR_VALUE))
		p++;
	return p;
}

/* Returns the first byte in [p, end) that is not visible ASCII (0x21 to 0x7e); `end` if there is
 * none. */
static inline const char *kvw_scan_visible(const char *p, const char *end)
{
#ifdef __SSE2__
	const __m128i space = _mm_set1_epi8(0x20), del = _mm_set1_epi8(0x7f);

	for (; end - p >= 16; p += 16) {
		__m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
		/* signed: bytes from 0x80 on are negative, hence not greater than a space */
		__m128i good = _mm_andnot_si128(_mm_cmpeq_epi8(x, del), _mm_cmpgt_epi8(x, space));
		int mask = _mm_movemask_epi8(good) ^ 0xffff;

		if (mask != 0)
			return p + __builtin_ctz((unsigned)mask);
	}
#endif
	while (p < end && (uint8_t)(*p - 0x21) < 0x5e)
		p++;
	return p;
}

/* Returns the first LF in [p, end) that is followed by CR or LF, or is the last byte; `end` if
 * there is none. */
static inline const char *kvw_scan_line_pair(const char *p, const char *end)
{
#ifdef __SSE2__
	const __m128i lf = _mm_set1_epi8('\n'), cr = _mm_set1_epi8('\r');

	for (; end - p >= 17; p += 16) {
		__m128i x = _mm_loadu_si128((const __m128i *)(const void *)p);
		__m128i y = _mm_loadu_si128((const __m128i *)(const void *)(p + 1));
		__m128i next = _mm_or_si128(_mm_cmpeq_epi8(y, lf), _mm_cmpeq_epi8(y, cr));
		int mask = _mm_movemask_epi8(_mm_and_si128(_mm_cmpeq_epi8(x, lf), next));

		if (mask != 0)
			return p + __builtin_ctz((unsigned)mask);
	}
#endif
	for (; p < end; p++) {
		if (*p == '\n' && (p + 1 == end || p[1] == '\n' || p[1] == '\r'))
			return p;
	}
	return end;
}

#endif
