/*
 * capacity_share.c - learns how much of a worker's cache predictions may assume.
 *
 * A prediction is good if it is within two blocks of 32 tokens and 2 % of the prompt: template
 * tokens and the ratio of text to tokens cause errors of that size without any eviction.
 */
#include "routing/capacity_share.h"

#define SHRINK      32.0
#define GROW        256.0
#define GROW_FASTER 64.0

void kvw_capacity_share_init(struct kvw_capacity_share *shares)
{
	for (size_t i = 0; i < KVW_MAX_WORKERS; i++)
		atomic_init(&shares->share[i], 1);
}

void kvw_capacity_share_learn(struct kvw_capacity_share *shares, uint32_t worker, uint32_t prompt,
	uint32_t predicted, uint32_t actual)
{
	_Atomic float *share = &shares->share[worker];
	double old = atomic_load_explicit(share, memory_order_relaxed);
	double slack = 64 + prompt * 0.02;
	double error = (double)predicted - actual;
	double value = old;

	if (error > slack)
		value -= old * (error / predicted) / SHRINK;
	else if (error < -slack)
		value += (1 - old) / GROW_FASTER;
	else if (predicted > 0)
		value += (1 - old) / GROW;
	if (value < KVW_CAPACITY_SHARE_LEAST)
		value = KVW_CAPACITY_SHARE_LEAST;
	if (value > 0.999)
		value = 1;
	if (value != old)
		atomic_store_explicit(share, (float)value, memory_order_relaxed);
}

void kvw_capacity_share_restart(struct kvw_capacity_share *shares, uint32_t worker)
{
	atomic_store_explicit(&shares->share[worker], 1, memory_order_relaxed);
}
