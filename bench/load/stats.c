/*
 * stats.c - samples and their percentiles. Adding is O(1) amortised, the first percentile O(n log
 * n).
 */
#include "bench/load/stats.h"

#include <stdlib.h>

#include "bench/load/mem.h"
#include "bench/timing.h"

void kvb_samples_add(struct kvb_samples *set, double value)
{
	if (set->count == set->capacity) {
		set->capacity = set->capacity ? set->capacity * 2 : 1024;
		set->values = kvb_realloc(set->values, set->capacity, sizeof(*set->values));
	}
	set->values[set->count++] = value;
	set->sorted = false;
}

double kvb_samples_percentile(struct kvb_samples *set, double p)
{
	double rank, part;
	size_t low;

	if (set->count == 0)
		return 0;
	if (!set->sorted)
		qsort(set->values, set->count, sizeof(*set->values), kvb_by_value);
	set->sorted = true;
	rank = (double)(set->count - 1) * p / 100;
	low = (size_t)rank;
	if (low + 1 >= set->count)
		return set->values[set->count - 1];
	part = rank - (double)low;
	return set->values[low] + (set->values[low + 1] - set->values[low]) * part;
}

double kvb_samples_mean(const struct kvb_samples *set)
{
	double sum = 0;

	for (size_t i = 0; i < set->count; i++)
		sum += set->values[i];
	return set->count ? sum / (double)set->count : 0;
}

struct kvb_summary kvb_samples_summary(struct kvb_samples *set, double scale)
{
	return (struct kvb_summary){
		.count = set->count,
		.mean = kvb_samples_mean(set) * scale,
		.p50 = kvb_samples_percentile(set, 50) * scale,
		.p90 = kvb_samples_percentile(set, 90) * scale,
		.p99 = kvb_samples_percentile(set, 99) * scale,
		.max = kvb_samples_percentile(set, 100) * scale,
	};
}

void kvb_samples_finish(struct kvb_samples *set)
{
	free(set->values);
	*set = (struct kvb_samples){0};
}
