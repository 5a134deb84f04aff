/*
 * weigh_kernel.h - the loops over all workers that every pick runs.
 *
 * They read arrays from one end to the other and nothing else, written once in C and once for
 * AVX-512; both give the same bits. Arrays are indexed by place; loads() is for candidates whose places
 * are their ids.
 */
#ifndef KVW_WEIGH_KERNEL_H
#define KVW_WEIGH_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "kvway/load.h"

struct kvw_weigh_kernel {
	/* costs[i] = Q_w + c T_w in ns, x[i] = rates[i], inflight[i] = n_w of the board's first `count`
	 * workers. Returns the sum of n_w. */
	uint64_t (*loads)(const struct kvw_load_board *board, const _Atomic float *rates,
		size_t count, int64_t now_ns, double context_ns, double *costs, float *x,
		int32_t *inflight);

	/* costs[i] += (miss - saved[i]) x[i] (1 + omega inflight[i]). Returns the lowest. */
	double (*sum)(size_t count, double miss, float omega, const double *saved, const float *x,
		const int32_t *inflight, double *costs);

	/* Places of the costs up to `limit`, ascending. Returns how many. */
	size_t (*within)(const double *costs, size_t count, double limit, uint16_t *places);
};

extern const struct kvw_weigh_kernel kvw_weigh_kernel_base;
#ifdef KVW_HAVE_AVX512
extern const struct kvw_weigh_kernel kvw_weigh_kernel_avx512;
#endif

/* The best for this processor. */
const struct kvw_weigh_kernel *kvw_weigh_kernel_best(void);

#endif
