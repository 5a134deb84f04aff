/*
 * weigh_kernel.c - see weigh_kernel.h; in plain C, four at a time where one step would wait for the
 * one before.
 */
#include "weigh_kernel.h"

#include <math.h>

static uint64_t loads(const struct kvw_load_board *board, const _Atomic float *rates, size_t count,
	int64_t now_ns, double context_ns, double *costs, float *x, int32_t *inflight)
{
	uint64_t total = 0;

	for (size_t i = 0; i < count; i++) {
		const struct kvw_load_seen *seen = &board->workers[i];
		int64_t idle_at = atomic_load_explicit(&seen->idle_at_ns, memory_order_relaxed);
		uint64_t held = atomic_load_explicit(&seen->held, memory_order_relaxed);
		uint32_t n = (uint32_t)held;
		int64_t queue = idle_at > now_ns ? idle_at - now_ns : 0;

		costs[i] = (double)queue + context_ns * (uint32_t)(held >> 32);
		x[i] = atomic_load_explicit(&rates[i], memory_order_relaxed);
		inflight[i] = (int32_t)n;
		total += n;
	}
	return total;
}

static double sum(size_t count, double miss, float omega, const double *saved, const float *x,
	const int32_t *inflight, double *costs)
{
	double low[4] = {INFINITY, INFINITY, INFINITY, INFINITY};

	for (size_t i = 0; i < count; i++) {
		costs[i] += (miss - saved[i]) * (x[i] * (1 + omega * (float)inflight[i]));
		low[i % 4] = costs[i] < low[i % 4] ? costs[i] : low[i % 4];
	}
	low[0] = low[1] < low[0] ? low[1] : low[0];
	low[2] = low[3] < low[2] ? low[3] : low[2];
	return low[2] < low[0] ? low[2] : low[0];
}

static size_t within(const double *costs, size_t count, double limit, uint16_t *places)
{
	size_t n = 0;

	for (size_t i = 0; i < count; i++) {
		places[n] = (uint16_t)i;
		n += costs[i] <= limit;
	}
	return n;
}

const struct kvw_weigh_kernel kvw_weigh_kernel_base = {loads, sum, within};

const struct kvw_weigh_kernel *kvw_weigh_kernel_best(void)
{
#ifdef KVW_HAVE_AVX512
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
		__builtin_cpu_supports("avx512vl"))
		return &kvw_weigh_kernel_avx512;
#endif
	return &kvw_weigh_kernel_base;
}
