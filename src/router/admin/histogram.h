/*
 * histogram.h - durations counted in buckets with fixed upper bounds.
 *
 * The bucket of a value is found without a search: its bit length picks the first bound of its
 * octave from a table, and at most the few bounds inside one octave are compared after that. The
 * bounds are those that dashboards expect, so they are not powers of two.
 *
 * Threads: one thread observes, any thread reads (relaxed atomics, no locked instruction). A reader
 * may see a sum that lacks a value already counted, by at most the one being added.
 */
#ifndef KVW_HISTOGRAM_H
#define KVW_HISTOGRAM_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#define KVW_BOUNDS_MAX 23

/* Upper bounds (inclusive), ascending, in ns. Immutable after kvw_bounds_init(). */
struct kvw_bounds {
	int64_t ns[KVW_BOUNDS_MAX];
	uint8_t count;
	uint8_t first[65]; /* by bit length of a value: the least index that can hold it */
};

struct kvw_histogram {
	_Atomic uint64_t sum_ns;
	_Atomic uint64_t buckets[KVW_BOUNDS_MAX + 1]; /* not cumulative; [count] = above all */
};

/* A histogram added up over shards. */
struct kvw_histogram_sum {
	uint64_t sum_ns, count;
	uint64_t buckets[KVW_BOUNDS_MAX + 1];
};

/* us: ascending bounds in microseconds, at most KVW_BOUNDS_MAX. */
void kvw_bounds_init(struct kvw_bounds *bounds, const uint64_t *us, size_t count);

void kvw_histogram_collect(const struct kvw_histogram *histogram, struct kvw_histogram_sum *into);

/* Adds to an atomic that only the calling thread writes: a plain add, without a lock prefix. */
static inline void kvw_bump(_Atomic uint64_t *value, uint64_t n)
{
	atomic_store_explicit(
		value, atomic_load_explicit(value, memory_order_relaxed) + n, memory_order_relaxed);
}

static inline void kvw_histogram_observe(
	struct kvw_histogram *histogram, const struct kvw_bounds *bounds, int64_t ns)
{
	uint64_t value = ns < 0 ? 0 : (uint64_t)ns;
	size_t i = bounds->first[value == 0 ? 0 : 64 - __builtin_clzll(value)];

	while (i < bounds->count && value > (uint64_t)bounds->ns[i])
		i++;
	kvw_bump(&histogram->buckets[i], 1);
	kvw_bump(&histogram->sum_ns, value);
}

#endif
