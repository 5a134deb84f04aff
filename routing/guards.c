/*
 * guards.c - workers that a choice by cost passes over, however cheap they look.
 */
#include "routing/guards.h"

#include "routing/choice.h"

void kvw_guards_set(struct kvw_guards *guards, const struct kvw_strategy_options *options)
{
	atomic_store_explicit(&guards->bound, options->inflight_bound, memory_order_relaxed);
	atomic_store_explicit(&guards->gap, options->inflight_gap, memory_order_relaxed);
}

enum kvw_reason kvw_guards_bar(
	const struct kvw_guards *guards, const struct kvw_candidate *candidate, double mean)
{
	double inflight = kvw_load_inflight(candidate->load);
	double bound = atomic_load_explicit(&guards->bound, memory_order_relaxed);
	double gap = atomic_load_explicit(&guards->gap, memory_order_relaxed);

	if (candidate->share < 1 && inflight > candidate->share * mean)
		return KVW_REASON_SLOW_START;
	if (bound > 0 && inflight > bound * mean + gap)
		return KVW_REASON_BOUND;
	return KVW_REASON_COUNT;
}

size_t kvw_guards_open(const struct kvw_guards *guards, const struct kvw_candidates *set,
	double mean, const double *costs, double *open)
{
	size_t count = 0;

	for (size_t i = 0; i < set->count; i++) {
		bool barred = costs[i] >= KVW_NO_COST ||
			      kvw_guards_bar(guards, &set->items[i], mean) != KVW_REASON_COUNT;

		open[i] = barred ? KVW_NO_COST : costs[i];
		count += !barred;
	}
	return count;
}
