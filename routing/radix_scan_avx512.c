/*
 * radix_scan_avx512.c - eight holders at once.
 *
 * A worker has one entry in a node, but a slot that is being reused may show two for a moment. Two that
 * are about to enter the list would enter it twice, so that vector goes the slow way.
 *
 * Compiled for AVX-512 (F, BW, CD, DQ, VL) and called only where the processor has it. A load of
 * 64 bytes is not atomic, but each of its aligned words is, which is all that a reader needs.
 */
#include <immintrin.h>

#include "radix_scan.h"

#include "radix_node.h"

#define LANES 8

/* Holders taken apart, 32 bits a lane. */
struct lanes {
	__m256i worker;
	__m256i extent; /* kvw_holder_extent */
};

static inline __mmask8 lanes_of(unsigned left)
{
	return (__mmask8)(left < LANES ? (1u << left) - 1 : 0xff);
}

static inline struct lanes load(
	const _Atomic uint64_t *words, __mmask8 mask, const _Atomic uint64_t *windows)
{
	__m512i word = _mm512_maskz_loadu_epi64(mask, (const void *)words);
	__m256i low = _mm512_cvtepi64_epi32(word);
	__m256i tick = _mm512_cvtepi64_epi32(_mm512_srli_epi64(word, 32));
	__m256i worker = _mm256_and_si256(low, _mm256_set1_epi32(KVW_MAX_WORKERS - 1));
	__m512i window = _mm512_i32gather_epi64(worker, (const void *)windows, 8);
	__m256i floor = _mm512_cvtepi64_epi32(_mm512_srli_epi64(window, 32));
	__m256i length = _mm256_sub_epi32(_mm512_cvtepi64_epi32(window), floor);
	__m256i age = _mm256_sub_epi32(tick, floor); /* of the window's beginning */
	__m256i rest = _mm256_sub_epi32(age, _mm256_srli_epi32(low, 20));
	__mmask8 known = mask & _mm512_test_epi64_mask(window, window);
	__mmask8 alive = _mm256_mask_cmple_epu32_mask(known, age, length);
	__mmask8 whole = _mm256_mask_cmple_epu32_mask(alive, rest, length);
	__m256i five = _mm256_set1_epi32(31);
	__m256i mid = _mm256_maskz_and_epi32(alive, _mm256_srli_epi32(low, 15), five);

	return (struct lanes){
		.worker = worker,
		.extent = _mm256_mask_and_epi32(mid, whole, _mm256_srli_epi32(low, 10), five),
	};
}

static uint32_t of_worker(const _Atomic uint64_t *words, unsigned used, uint32_t worker)
{
	uint32_t mine = 0;

	for (unsigned i = 0; i < used; i += LANES) {
		__m512i word =
			_mm512_maskz_loadu_epi64(lanes_of(used - i), (const void *)(words + i));
		__m512i whose = _mm512_and_si512(word, _mm512_set1_epi64(KVW_MAX_WORKERS - 1));

		mine |= (uint32_t)(_mm512_cmpeq_epi64_mask(whose, _mm512_set1_epi64(worker)) &
				   _mm512_test_epi64_mask(word, word))
			<< i;
	}
	return mine;
}

static uint32_t dead(const _Atomic uint64_t *words, unsigned used, const _Atomic uint64_t *windows)
{
	uint32_t gone = 0;

	for (unsigned i = 0; i < used; i += LANES) {
		__mmask8 mask = lanes_of(used - i);
		struct lanes lanes = load(words + i, mask, windows);

		gone |= (uint32_t)_mm256_mask_testn_epi32_mask(mask, lanes.extent, lanes.extent)
			<< i;
	}
	return gone;
}

/* Whether a worker occurs twice among these lanes. */
static inline bool has_twins(__m256i worker, __mmask8 lanes)
{
	/* The other lanes are all different from each other and from any worker. */
	const __m256i others = _mm256_setr_epi32(-1, -2, -3, -4, -5, -6, -7, -8);
	__m256i before = _mm256_conflict_epi32(_mm256_mask_mov_epi32(others, lanes, worker));

	return _mm256_test_epi32_mask(before, before) != 0;
}

static void reach_slot(const _Atomic uint64_t *words, unsigned used,
	const _Atomic uint64_t *windows, uint32_t start, uint32_t length,
	struct kvw_radix_reach *reach)
{
	const __m256i starts = _mm256_set1_epi32((int)start);
	const __m256i most = _mm256_set1_epi32((int)length);
	const __m256i limit = _mm256_set1_epi32((int)reach->limit);

	for (unsigned i = 0; i < used; i += LANES) {
		__mmask8 mask = lanes_of(used - i);
		struct lanes lanes = load(words + i, mask, windows);
		__m256i held = _mm256_i32gather_epi32((const int *)reach->chunks, lanes.worker, 4);
		__m256i upto = _mm256_min_epu32(lanes.extent, most);
		__mmask8 known = _mm256_mask_cmplt_epu32_mask(mask, lanes.worker, limit);
		__mmask8 counts = _mm256_mask_cmplt_epu32_mask(
			known, _mm256_sub_epi32(held, starts), upto);
		__mmask8 fresh = counts & _mm256_testn_epi32_mask(held, held);

		if (counts == 0)
			continue;
		if ((fresh & (fresh - 1)) != 0 && has_twins(lanes.worker, fresh)) {
			kvw_radix_scan_base.reach(words + i, used - i < LANES ? used - i : LANES,
				windows, start, length, reach);
			continue;
		}
		_mm256_mask_i32scatter_epi32((int *)reach->chunks, counts, lanes.worker,
			_mm256_add_epi32(starts, upto), 4);
		_mm_storeu_si128((__m128i *)(void *)&reach->workers[reach->count],
			_mm256_cvtepi32_epi16(_mm256_maskz_compress_epi32(fresh, lanes.worker)));
		reach->count += (uint32_t)__builtin_popcount(fresh);
	}
}

const struct kvw_radix_scan kvw_radix_scan_avx512 = {of_worker, dead, reach_slot};
