/*
 * histogram.c - durations counted in buckets with fixed upper bounds.
 */
#include "metrics/histogram.h"

#include <assert.h>

void kvw_bounds_init(
	struct kvw_bounds *bounds, const uint64_t *values, size_t count, uint64_t unit_ns)
{
	assert(count <= KVW_BOUNDS_MAX);
	bounds->count = (uint8_t)count;
	for (size_t i = 0; i < count; i++)
		bounds->ns[i] = (int64_t)(values[i] * unit_ns);
	for (unsigned bits = 0; bits <= 64; bits++) {
		uint64_t least = bits == 0 ? 0 : UINT64_C(1) << (bits - 1);
		uint8_t i = 0;

		while (i < count && (uint64_t)bounds->ns[i] < least)
			i++;
		bounds->first[bits] = i;
	}
}

void kvw_histogram_collect(const struct kvw_histogram *histogram, struct kvw_histogram_sum *into)
{
	into->sum_ns += kvw_counted(&histogram->sum_ns);
	for (size_t i = 0; i <= KVW_BOUNDS_MAX; i++) {
		uint64_t n = kvw_counted(&histogram->buckets[i]);

		into->buckets[i] += n;
		into->count += n;
	}
}
