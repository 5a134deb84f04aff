/*
 * weigh_kernel_avx512.c - the loops of weigh_kernel.h for eight workers at once.
 *
 * Compiled for AVX-512 (F, DQ, VL), without fused multiply-add so that the bits are those of the
 * loop in C, and called only where the processor has it. A load of 64 bytes is not atomic, but each
 * of its aligned words is, which is all that a reader needs.
 */
#include <immintrin.h>
#include <math.h>

#include "routing/weigh_kernel.h"

#define LANES 8

_Static_assert(sizeof(struct kvw_chunk) == 16, "twice what a gather can step");

_Static_assert(sizeof(struct kvw_load_room) == 8, "both are loaded as one word");

static inline __mmask8 lanes_of(size_t left)
{
	return (__mmask8)(left < LANES ? (1u << left) - 1 : 0xff);
}

/* Input and output of one step for up to eight workers; the mask selects them. */
struct step {
	const struct kvw_load_seen *seen;
	const struct kvw_load_room *rooms;
	const _Atomic float *rates;
	double *costs;
	float *x;
	int32_t *inflight;
};

/* Sums over all steps. */
struct sums {
	__m512i inflight;
	__m512d lowest;
};

static inline struct sums load_step(
	struct step at, size_t left, const struct kvw_cost_terms *terms, struct sums sums)
{
	__mmask8 m = lanes_of(left);
	__m512i now = _mm512_set1_epi64(terms->now_ns);
	__m512i low = _mm512_maskz_loadu_epi64(lanes_of(2 * left), at.seen);
	__m512i high = _mm512_maskz_loadu_epi64(
		lanes_of(left > LANES / 2 ? 2 * left - LANES : 0), at.seen + LANES / 2);
	__m512i idle_at =
		_mm512_permutex2var_epi64(low, _mm512_setr_epi64(0, 2, 4, 6, 8, 10, 12, 14), high);
	__m512i held =
		_mm512_permutex2var_epi64(low, _mm512_setr_epi64(1, 3, 5, 7, 9, 11, 13, 15), high);
	__m512i queue = _mm512_sub_epi64(_mm512_max_epi64(idle_at, now), now);
	__m512d context = _mm512_cvtepu64_pd(_mm512_srli_epi64(held, 32));
	__m512d read = _mm512_mul_pd(_mm512_set1_pd(terms->context_ns), context);
	__m512i room = _mm512_maskz_loadu_epi64(m, at.rooms);
	__m512d fits = _mm512_cvtps_pd(_mm256_castsi256_ps(_mm512_cvtepi64_epi32(room)));
	__m512d each = _mm512_cvtps_pd(
		_mm256_castsi256_ps(_mm512_cvtepi64_epi32(_mm512_srli_epi64(room, 32))));
	__m512d over = _mm512_sub_pd(_mm512_add_pd(context, _mm512_set1_pd(terms->tokens)), fits);
	__m512d wait = _mm512_mul_pd(_mm512_max_pd(over, _mm512_setzero_pd()), each);
	__m256i n = _mm512_cvtepi64_epi32(held);
	__m256 x = _mm256_maskz_loadu_ps(m, (const void *)at.rates);
	__m256 others = _mm256_add_ps(_mm256_set1_ps(1),
		_mm256_mul_ps(_mm256_set1_ps(terms->omega), _mm256_cvtepi32_ps(n)));
	__m512d prefill = _mm512_mul_pd(
		_mm512_set1_pd(terms->miss), _mm512_cvtps_pd(_mm256_mul_ps(x, others)));
	__m512d begin = _mm512_max_pd(_mm512_cvtepi64_pd(queue), wait);
	__m512d cost = _mm512_add_pd(_mm512_add_pd(begin, read), prefill);

	_mm512_mask_storeu_pd(at.costs, m, cost);
	_mm256_mask_storeu_epi32(at.inflight, m, n);
	_mm256_mask_storeu_ps(at.x, m, x);
	return (struct sums){_mm512_add_epi64(sums.inflight, _mm512_cvtepu32_epi64(n)),
		_mm512_mask_min_pd(sums.lowest, m, sums.lowest, cost)};
}

static uint64_t loads(const struct kvw_load_board *board, const _Atomic float *rates, size_t count,
	const struct kvw_cost_terms *terms, double *costs, float *x, int32_t *inflight,
	double *lowest)
{
	struct step at = {board->workers, board->rooms, rates, costs, x, inflight};
	struct sums sums = {_mm512_setzero_si512(), _mm512_set1_pd(INFINITY)};

	/* Whole steps need no masks; most fleets have only a few. */
	for (; count >= LANES; count -= LANES) {
		sums = load_step(at, LANES, terms, sums);
		at = (struct step){at.seen + LANES, at.rooms + LANES, at.rates + LANES,
			at.costs + LANES, at.x + LANES, at.inflight + LANES};
	}
	if (count > 0)
		sums = load_step(at, count, terms, sums);
	*lowest = _mm512_reduce_min_pd(sums.lowest);
	return (uint64_t)_mm512_reduce_add_epi64(sums.inflight);
}

/* Returns how many tokens each of eight workers reuses. */
static inline __m256i hits_of(const struct kvw_reached *reached, size_t r, __mmask8 m)
{
	__m256i last = _mm256_sub_epi32(
		_mm256_maskz_loadu_epi32(m, &reached->held[r]), _mm256_set1_epi32(1));
	__m256i units = _mm256_mmask_i32gather_epi32(_mm256_setzero_si256(), m,
		_mm256_add_epi32(last, last), &reached->chunks->end, sizeof(struct kvw_chunk) / 2);
	__m512d exact = _mm512_add_pd(
		_mm512_mul_pd(_mm512_cvtepu32_pd(units), _mm512_set1_pd(reached->tokens_per_unit)),
		_mm512_set1_pd(0.5));
	__m256i tokens =
		_mm256_min_epu32(_mm512_cvttpd_epu32(exact), _mm256_set1_epi32((int)reached->most));

	return _mm256_and_si256(tokens, _mm256_set1_epi32(-(int)reached->block_size));
}

static double take(
	const struct kvw_reached *reached, const struct kvw_weights *weights, double *costs)
{
	__m512d lowest = _mm512_set1_pd(INFINITY);

	for (size_t r = 0; r < reached->count; r += LANES) {
		__mmask8 m = lanes_of(reached->count - r);
		__m256i i = _mm256_maskz_loadu_epi32(m, &reached->workers[r]);
		__m256i hit = hits_of(reached, r, m);
		__m512d h = _mm512_cvtepu32_pd(hit);
		__m512d saved = _mm512_add_pd(
			h, _mm512_mul_pd(_mm512_mul_pd(h, h), _mm512_set1_pd(reached->pairs / 2)));
		__m256 n = _mm256_cvtepi32_ps(_mm256_mmask_i32gather_epi32(
			_mm256_setzero_si256(), m, i, weights->inflight, 4));
		__m256 x = _mm256_mmask_i32gather_ps(_mm256_setzero_ps(), m, i, weights->x, 4);
		__m256 each =
			_mm256_mul_ps(x, _mm256_add_ps(_mm256_set1_ps(1),
						 _mm256_mul_ps(_mm256_set1_ps(reached->omega), n)));
		__m256i before = _mm256_mmask_i32gather_epi32(
			_mm256_setzero_si256(), m, i, weights->hits, 4);
		__mmask8 again = _mm256_test_epi32_mask(before, before);
		__m512d cost =
			_mm512_mask_i32gather_pd(_mm512_setzero_pd(), m, i, weights->costs, 8);

		cost = _mm512_sub_pd(cost, _mm512_mul_pd(saved, _mm512_cvtps_pd(each)));
		lowest = _mm512_mask_min_pd(lowest, m, lowest, cost);
		_mm512_storeu_pd(&costs[r], cost);
		_mm512_mask_i32scatter_pd(weights->costs, m, i, cost, 8);
		if (again != 0)
			saved = _mm512_add_pd(saved, _mm512_mask_i32gather_pd(_mm512_setzero_pd(),
							     again, i, weights->saved, 8));
		_mm512_mask_i32scatter_pd(weights->saved, m, i, saved, 8);
		_mm256_mask_i32scatter_epi32(weights->hits, m, i, _mm256_add_epi32(before, hit), 4);
	}
	return _mm512_reduce_min_pd(lowest);
}

static size_t within(const double *costs, size_t count, double limit, uint16_t *places)
{
	__m512d most = _mm512_set1_pd(limit);
	size_t n = 0;

	for (size_t i = 0; i < count; i += LANES) {
		__m512d cost = _mm512_maskz_loadu_pd(lanes_of(count - i), &costs[i]);
		unsigned in = _mm512_mask_cmp_pd_mask(lanes_of(count - i), cost, most, _CMP_LE_OQ);

		for (; in != 0; in &= in - 1)
			places[n++] = (uint16_t)(i + (unsigned)__builtin_ctz(in));
	}
	return n;
}

const struct kvw_weigh_kernel kvw_weigh_kernel_avx512 = {loads, take, within};
