/*
 * weigh_kernel.c - the loops of weigh_kernel.h in plain C, four elements at a time where otherwise
 * each step would wait for the one before.
 */
#include "routing/weigh_kernel.h"

#include <math.h>

static uint64_t loads(const struct kvw_load_board *board, const _Atomic float *rates, size_t count,
	const struct kvw_cost_terms *terms, double *costs, float *x, int32_t *inflight,
	double *lowest)
{
	double low[4] = {INFINITY, INFINITY, INFINITY, INFINITY};
	uint64_t total = 0;

	for (size_t i = 0; i < count; i++) {
		const struct kvw_load_seen *seen = &board->workers[i];
		int64_t idle_at = atomic_load_explicit(&seen->idle_at_ns, memory_order_relaxed);
		uint64_t held = atomic_load_explicit(&seen->held, memory_order_relaxed);
		uint32_t n = (uint32_t)held;
		double queue = idle_at > terms->now_ns ? (double)(idle_at - terms->now_ns) : 0;
		const struct kvw_load_room *room = &board->rooms[i];
		double over = (double)(uint32_t)(held >> 32) + terms->tokens -
			      (double)atomic_load_explicit(&room->tokens, memory_order_relaxed);
		double wait =
			(over > 0 ? over : 0) *
			(double)atomic_load_explicit(&room->ns_per_token, memory_order_relaxed);

		x[i] = atomic_load_explicit(&rates[i], memory_order_relaxed);
		costs[i] = (queue > wait ? queue : wait) +
			   terms->context_ns * (uint32_t)(held >> 32) +
			   terms->miss * (x[i] * (1 + terms->omega * (float)(int32_t)n));
		low[i % 4] = costs[i] < low[i % 4] ? costs[i] : low[i % 4];
		inflight[i] = (int32_t)n;
		total += n;
	}
	low[0] = low[1] < low[0] ? low[1] : low[0];
	low[2] = low[3] < low[2] ? low[3] : low[2];
	*lowest = low[2] < low[0] ? low[2] : low[0];
	return total;
}

static double take(
	const struct kvw_reached *reached, const struct kvw_weights *weights, double *costs)
{
	double lowest = INFINITY;

	for (size_t r = 0; r < reached->count; r++) {
		uint32_t i = reached->workers[r];
		double units = reached->chunks[reached->held[r] - 1].end;
		uint32_t tokens = (uint32_t)(units * reached->tokens_per_unit + 0.5);
		uint32_t hit = (tokens < reached->most ? tokens : reached->most) &
			       ~(reached->block_size - 1);
		double saved = hit + (double)hit * hit * (reached->pairs / 2);
		float each = weights->x[i] * (1 + reached->omega * (float)weights->inflight[i]);

		weights->saved[i] = (weights->hits[i] > 0 ? weights->saved[i] : 0) + saved;
		weights->hits[i] += hit;
		weights->costs[i] -= saved * each;
		costs[r] = weights->costs[i];
		lowest = costs[r] < lowest ? costs[r] : lowest;
	}
	return lowest;
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

const struct kvw_weigh_kernel kvw_weigh_kernel_base = {loads, take, within};

const struct kvw_weigh_kernel *kvw_weigh_kernel_best(void)
{
#ifdef KVW_HAVE_AVX512
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
		__builtin_cpu_supports("avx512vl"))
		return &kvw_weigh_kernel_avx512;
#endif
	return &kvw_weigh_kernel_base;
}
