/*
 * weigh_kernel_avx512.c - see weigh_kernel.h; eight workers at once.
 *
 * Compiled for AVX-512 (F, DQ, VL), without fused multiply-add so that the bits are those of the loop in
 * C, and called only where the processor has it. A load of 64 bytes is not atomic, but each of its
 * aligned words is, which is all that a reader needs.
 */
#include <immintrin.h>
#include <math.h>

#include "weigh_kernel.h"

#define LANES 8

static inline __mmask8 lanes_of(size_t left)
{
	return (__mmask8)(left < LANES ? (1u << left) - 1 : 0xff);
}

static uint64_t loads(const struct kvw_load_board *board, const _Atomic float *rates, size_t count,
	int64_t now_ns, double context_ns, double *costs, float *x, int32_t *inflight)
{
	__m512i now = _mm512_set1_epi64(now_ns);
	__m512i total = _mm512_setzero_si512();

	for (size_t i = 0; i < count; i += LANES) {
		__mmask8 m = lanes_of(count - i);
		__m512i idle = _mm512_mask_loadu_epi64(now, m, (const void *)&board->idle_at_ns[i]);
		__m512i queue = _mm512_sub_epi64(_mm512_max_epi64(idle, now), now);
		__m512i held = _mm512_maskz_loadu_epi64(m, (const void *)&board->held[i]);
		__m256i n = _mm512_cvtepi64_epi32(held);
		__m512d read = _mm512_mul_pd(_mm512_set1_pd(context_ns),
			_mm512_cvtepu64_pd(_mm512_srli_epi64(held, 32)));

		_mm512_mask_storeu_pd(&costs[i], m, _mm512_add_pd(_mm512_cvtepi64_pd(queue), read));
		_mm256_mask_storeu_epi32(&inflight[i], m, n);
		_mm256_mask_storeu_ps(&x[i], m, _mm256_maskz_loadu_ps(m, (const void *)&rates[i]));
		total = _mm512_add_epi64(total, _mm512_cvtepu32_epi64(n));
	}
	return (uint64_t)_mm512_reduce_add_epi64(total);
}

static double sum(size_t count, double miss, float omega, const double *saved, const float *x,
	const int32_t *inflight, double *costs)
{
	__m512d low = _mm512_set1_pd(INFINITY);

	for (size_t i = 0; i < count; i += LANES) {
		__mmask8 m = lanes_of(count - i);
		__m256 n = _mm256_cvtepi32_ps(_mm256_maskz_loadu_epi32(m, &inflight[i]));
		__m256 others = _mm256_add_ps(
			_mm256_set1_ps(1), _mm256_mul_ps(_mm256_set1_ps(omega), n));
		__m256 each = _mm256_mul_ps(_mm256_maskz_loadu_ps(m, &x[i]), others);
		__m512d work = _mm512_sub_pd(
			_mm512_set1_pd(miss), _mm512_maskz_loadu_pd(m, &saved[i]));
		__m512d cost = _mm512_add_pd(_mm512_maskz_loadu_pd(m, &costs[i]),
			_mm512_mul_pd(work, _mm512_cvtps_pd(each)));

		_mm512_mask_storeu_pd(&costs[i], m, cost);
		low = _mm512_mask_min_pd(low, m, low, cost);
	}
	return _mm512_reduce_min_pd(low);
}

static size_t within(const double *costs, size_t count, double limit, uint16_t *places)
{
	__m512d most = _mm512_set1_pd(limit);
	size_t n = 0;

	for (size_t i = 0; i < count; i += LANES) {
		__m512d cost = _mm512_maskz_loadu_pd(lanes_of(count - i), &costs[i]);
		unsigned in =
			_mm512_mask_cmp_pd_mask(lanes_of(count - i), cost, most, _CMP_LE_OQ);

		for (; in != 0; in &= in - 1)
			places[n++] = (uint16_t)(i + (unsigned)__builtin_ctz(in));
	}
	return n;
}

const struct kvw_weigh_kernel kvw_weigh_kernel_avx512 = {loads, sum, within};
