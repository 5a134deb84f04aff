/*
 * histogram.h - durations counted in buckets with fixed upper bounds.
 *
 * The bucket of a value is found without a search: its bit length picks the first bound of its
 * octave from a table, and at most the few bounds inside one octave are compared after that.
 * Dashboards expect decimal bounds, so they are not powers of two.
 *
 * Threads: one thread observes (relaxed atomics, no locked instruction), or several through
 * kvw_histogram_observe_shared(); any thread reads. A reader may see a sum that lacks a value
 * already counted, by at most the one being added.
 */
#ifndef KVW_HISTOGRAM_H
#define KVW_HISTOGRAM_H

#include <stddef.h>

#include "metrics/counter.h"

#define KVW_BOUNDS_MAX 23

/* Upper bounds of buckets, in ns, ascending; a value equal to a bound is in its bucket. Not changed
 * after kvw_bounds_init(). */
struct kvw_bounds {
	int64_t ns[KVW_BOUNDS_MAX];
	uint8_t count;
	/* for each bit length: index of the first bucket that can have a value of that length */
	uint8_t first[65];
};

/* Zeroed is empty. */
struct kvw_histogram {
	_Atomic uint64_t sum_ns;
	/* values in each bucket, not cumulative; [count] has those above all bounds */
	_Atomic uint64_t buckets[KVW_BOUNDS_MAX + 1];
};

/* The sum of histograms of which each thread has its own. */
struct kvw_histogram_sum {
	uint64_t sum_ns, count;
	uint64_t buckets[KVW_BOUNDS_MAX + 1];
};

/* Sets the bounds to `values`, which ascend, in units of unit_ns; at most KVW_BOUNDS_MAX. */
void kvw_bounds_init(
	struct kvw_bounds *bounds, const uint64_t *values, size_t count, uint64_t unit_ns);

/* Adds the histogram to *into, which is all zeroes at first. */
void kvw_histogram_collect(const struct kvw_histogram *histogram, struct kvw_histogram_sum *into);

/* Returns the index of the bucket for a value. The first bucket has its own branch: for operations
 * below a microsecond the processor predicts it, and adds without waiting for the table. */
static inline size_t kvw_bounds_find(const struct kvw_bounds *bounds, uint64_t ns)
{
	size_t i;

	if (ns <= (uint64_t)bounds->ns[0])
		return 0;
	i = bounds->first[64 - __builtin_clzll(ns)];
	while (i < bounds->count && ns > (uint64_t)bounds->ns[i])
		i++;
	return i;
}

/* A negative duration counts as 0. */
static inline void kvw_histogram_observe(
	struct kvw_histogram *histogram, const struct kvw_bounds *bounds, int64_t ns)
{
	uint64_t value = ns < 0 ? 0 : (uint64_t)ns;

	kvw_bump(&histogram->buckets[kvw_bounds_find(bounds, value)], 1);
	kvw_bump(&histogram->sum_ns, value);
}

/* Like kvw_histogram_observe, for a histogram in which several threads observe. */
static inline void kvw_histogram_observe_shared(
	struct kvw_histogram *histogram, const struct kvw_bounds *bounds, int64_t ns)
{
	uint64_t value = ns < 0 ? 0 : (uint64_t)ns;

	atomic_fetch_add_explicit(&histogram->buckets[kvw_bounds_find(bounds, value)], 1,
		memory_order_relaxed);
	atomic_fetch_add_explicit(&histogram->sum_ns, value, memory_order_relaxed);
}

#endif
