/*
 * streaming.h - stores that bypass the processor's cache.
 *
 * Such a store does not read a line before it overwrites it, and evicts nothing from the core's
 * cache. Other threads may see the bytes only after kvt_stream_fence. Sanitizers do not see such
 * stores: under them, and on machines without SSE2, KVT_STREAMING is 0 and memcpy does the work.
 */
#ifndef KVT_STREAMING_H
#define KVT_STREAMING_H

#include <stddef.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define KVT_WATCHED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define KVT_WATCHED 1
#endif
#endif
#if defined(__SSE2__) && !defined(KVT_WATCHED)
#include <emmintrin.h>
#define KVT_STREAMING 1
#else
#define KVT_STREAMING 0
#endif

#define KVT_STREAM_LINE ((size_t)64) /* bytes of a cache line */

/* Copies n bytes, whole lines, to an address aligned to a line. */
static inline void kvt_stream_lines(char *to, const char *from, size_t n)
{
#if KVT_STREAMING
	for (; n > 0; n -= KVT_STREAM_LINE, to += KVT_STREAM_LINE, from += KVT_STREAM_LINE) {
		__m128i a = _mm_loadu_si128((const __m128i *)(const void *)from);
		__m128i b = _mm_loadu_si128((const __m128i *)(const void *)(from + 16));
		__m128i c = _mm_loadu_si128((const __m128i *)(const void *)(from + 32));
		__m128i d = _mm_loadu_si128((const __m128i *)(const void *)(from + 48));

		_mm_stream_si128((__m128i *)(void *)to, a);
		_mm_stream_si128((__m128i *)(void *)(to + 16), b);
		_mm_stream_si128((__m128i *)(void *)(to + 32), c);
		_mm_stream_si128((__m128i *)(void *)(to + 48), d);
	}
#else
	memcpy(to, from, n);
#endif
}

/* Makes the bytes that were streamed so far visible to other threads, before all later writes. */
static inline void kvt_stream_fence(void)
{
#if KVT_STREAMING
	_mm_sfence();
#endif
}

#endif
