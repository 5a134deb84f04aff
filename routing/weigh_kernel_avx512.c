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

/* What one step reads of, and gives for, some of eight workers; the others are idle. */
struct step {
	const struct kvw_load_seen *seen;
	const _Atomic float *rates;
	double *costs;
	float *x;
	int32_t *inflight;
};

/* Returns n_w of each. */
static inline __m512i load_step(
	struct step at, size_t left, __m512i now, __m512d context_ns)
{
	__mmask8 m = lanes_of(left);
	__m512i low = _mm512_maskz_loadu_epi64(lanes_of(2 * left), at.seen);
	__m512i high = _mm512_maskz_loadu_epi64(
		lanes_of(left > LANES / 2 ? 2 * left - LANES : 0), at.seen + LANES / 2);
	__m512i idle_at = _mm512_permutex2var_epi64(
		low, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), high);
	__m512i held = _mm512_permutex2var_epi64(
		low, _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15), high);
	__m512i queue = _mm512_sub_epi64(_mm512_max_epi64(idle_at, now), now);
	__m512d read = _mm512_mul_pd(context_ns, _mm512_cvtepu64_pd(_mm512_srli_epi64(held, 32)));
	__m256i n = _mm512_cvtepi64_epi32(held);

	_mm512_mask_storeu_pd(at.costs, m, _mm512_add_pd(_mm512_cvtepi64_pd(queue), read));
	_mm256_mask_storeu_epi32(at.inflight, m, n);
	_mm256_mask_storeu_ps(at.x, m, _mm256_maskz_loadu_ps(m, (const void *)at.rates));
	return _mm512_cvtepu32_epi64(n);
}

static uint64_t loads(const struct kvw_load_board *board, const _Atomic float *rates, size_t count,
	int64_t now_ns, double context_ns, double *costs, float *x, int32_t *inflight)
{
	struct step at = {board->workers, rates, costs, x, inflight};
	__m512i now = _mm512_set1_epi64(now_ns);
	__m512d context = _mm512_set1_pd(context_ns);
	__m512i total = _mm512_setzero_si512();

	/* Most fleets are a few whole steps: without masks. */
	for (; count >= LANES; count -= LANES) {
		total = _mm512_add_epi64(total, load_step(at, LANES, now, context));
		at = (struct step){at.seen + LANES, at.rates + LANES, at.costs + LANES,
			at.x + LANES, at.inflight + LANES};
	}
	if (count > 0)
		total = _mm512_add_epi64(total, load_step(at, count, now, context));
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
