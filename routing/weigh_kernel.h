/*
 * weigh_kernel.h - the loops over all workers that every pick runs.
 *
 * They read arrays from one end to the other and hardly anything else, written once in C and once
 * for AVX-512; both give the same bits. Arrays are indexed by place, those of take() by worker;
 * loads() is for candidates whose places are their ids.
 */
#ifndef KVW_WEIGH_KERNEL_H
#define KVW_WEIGH_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#include "kvway/load.h"
#include "kvway/route_request.h"

#define KVW_REACHED_SPARE 7 /* places that may be written behind the last */

/* What costs of a prompt are made of. Work is in tokens, as in rates.h. */
struct kvw_cost_terms {
	int64_t now_ns;
	double context_ns; /* c */
	double miss;       /* work of the prompt where nothing is cached */
	double tokens;     /* of the prompt */
	float omega;
};

/* The workers that hold some of a chain, and what hits in it are measured by. */
struct kvw_reached {
	const struct kvw_chunk *chunks;
	const uint32_t *workers; /* each once */
	const uint32_t *held;    /* leading chunks that each holds, > 0 */
	size_t count;
	double tokens_per_unit;
	double pairs; /* k */
	float omega;
	uint32_t most;       /* tokens of it that can be reused */
	uint32_t block_size; /* tokens; a power of two */
};

/* Of all candidates. */
struct kvw_weights {
	double *costs;           /* ns */
	uint32_t *hits;          /* tokens */
	double *saved;           /* work that they save; where there are hits */
	const float *x;          /* ns per token of work */
	const int32_t *inflight; /* n_w */
};

struct kvw_weigh_kernel {
	/* costs[i] = max(Q_w, K_w) + c T_w + miss x[i] (1 + omega inflight[i]) in ns, x[i] =
	 * rates[i], inflight[i] = n_w of the board's first `count` workers. *lowest: of the costs.
	 * Returns the sum of n_w. */
	uint64_t (*loads)(const struct kvw_load_board *board, const _Atomic float *rates,
		size_t count, const struct kvw_cost_terms *terms, double *costs, float *x,
		int32_t *inflight, double *lowest);

	/* Adds what workers reuse of a chain to their hits and to what these save, and takes it off
	 * their costs. costs: the same in the order of reached->workers, with KVW_REACHED_SPARE
	 * places more. Returns the lowest of them. */
	double (*take)(const struct kvw_reached *reached, const struct kvw_weights *weights,
		double *costs);

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
