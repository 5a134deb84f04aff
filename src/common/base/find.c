/*
 * find.c - searches a short text, as memmem(3), at half its cost in the few hundred bytes of an
 * answer.
 */
#include "base/find.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#ifdef __SSE2__
/* Returns the first match that begins at one of the 16 positions from p on. */
static const char *find_here(
	const char *p, struct kvw_slice what, __m128i second, __m128i near_last)
{
	__m128i begins = _mm_loadu_si128((const __m128i *)(p + 1));
	__m128i ends = _mm_loadu_si128((const __m128i *)(p + what.len - 2));
	unsigned hits = (unsigned)_mm_movemask_epi8(
		_mm_and_si128(_mm_cmpeq_epi8(begins, second), _mm_cmpeq_epi8(ends, near_last)));

	for (; hits != 0; hits &= hits - 1) {
		const char *at = p + __builtin_ctz(hits);

		if (memcmp(at, what.data, what.len) == 0)
			return at;
	}
	return NULL;
}

static const char *find_by_blocks(const char *data, size_t len, struct kvw_slice what)
{
	const __m128i second = _mm_set1_epi8(what.data[1]),
		      near_last = _mm_set1_epi8(what.data[what.len - 2]);
	const char *last = data + len - what.len - 15,
		   *at; /* position of the last block of 16, which may overlap the one before */

	for (const char *p = data; p < last; p += 16) {
		at = find_here(p, what, second, near_last);
		if (at != NULL)
			return at;
	}
	return find_here(last, what, second, near_last);
}
#endif

const char *kvw_find(const char *data, size_t len, struct kvw_slice what)
{
#ifdef __SSE2__
	if (len >= what.len + 15)
		return find_by_blocks(data, len, what);
#endif
	return len < what.len ? NULL : memmem(data, len, what.data, what.len);
}
