/*
 * weigh_kernel.h - the loops over all workers that every pick runs.
 *
 * They read arrays sequentially, and exist in C and for AVX-512; both compute the same bits. Arrays
 * are indexed by candidate, those of take() by worker; loads() is for candidates whose indices are
 * their ids.
 */
#ifndef KVW_WEIGH_KERNEL_H
#define KVW_WEIGH_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "kvway/load.h"
#include "kvway/route_request.h"

#define KVW_REACHED_SPARE 7 /* elements that may be written after the last */

/* Terms of a prompt's costs. Work is in tokens, as in rates.h. */
struct kvw_cost_terms {
	int64_t now_ns;
	double context_ns; /* c */
	double miss;       /* work of the prompt if nothing is cached */
	double tokens;     /* tokens of the prompt */
	float omega;
};

/* The workers that hold leading chunks of a chain, and what is needed to compute their hits. */
struct kvw_reached {
	const struct kvw_chunk *chunks;
	const uint32_t *workers; /* each once */
	const uint32_t *held;    /* leading chunks that each holds, > 0 */
	size_t count;
	double tokens_per_unit;
	double pairs; /* k */
	float omega;
	uint32_t most;       /* limit of tokens that can be reused */
	uint32_t block_size; /* tokens of a block; a power of two */
};

/* Arrays over all candidates. */
struct kvw_weights {
	double *costs;           /* ns */
	uint32_t *hits;          /* tokens */
	double *saved;           /* work that hits save; set only where there are hits */
	const float *x;          /* ns per token of work */
	const int32_t *inflight; /* n_w */
};

struct kvw_weigh_kernel {
	/* Computes costs[i] = max(Q_w, K_w) + c T_w + miss x[i] (1 + omega inflight[i]) in ns, x[i]
	 * = rates[i], inflight[i] = n_w, of the board's first `count` workers. *lowest: the lowest
	 * cost. Returns the sum of n_w. */
	uint64_t (*loads)(const struct kvw_load_board *board, const _Atomic float *rates,
		size_t count, const struct kvw_cost_terms *terms, double *costs, float *x,
		int32_t *inflight, double *lowest);

	/* Adds the tokens of a chain that workers reuse to their hits and savings, and subtracts
	 * the savings from their costs. costs: those costs in the order of reached->workers, with
	 * room for KVW_REACHED_SPARE more. Returns the lowest of them. */
	double (*take)(const struct kvw_reached *reached, const struct kvw_weights *weights,
		double *costs);

	/* Writes the indices of the costs up to `limit`, ascending. Returns their number. */
	size_t (*within)(const double *costs, size_t count, double limit, uint16_t *places);
};

extern const struct kvw_weigh_kernel kvw_weigh_kernel_base;
#ifdef KVW_HAVE_AVX512
extern const struct kvw_weigh_kernel kvw_weigh_kernel_avx512;
#endif

/* Returns the fastest loops that this processor can run. */
const struct kvw_weigh_kernel *kvw_weigh_kernel_best(void);

#endif
