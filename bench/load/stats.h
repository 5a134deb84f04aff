/*
 * stats.h - samples and their percentiles.
 *
 * All samples are kept and sorted at the end: a benchmark has at most some millions of them, and
 * a percentile read from buckets would hide the differences it is meant to show.
 */
#ifndef KVB_STATS_H
#define KVB_STATS_H

#include <stdbool.h>
#include <stddef.h>

struct kvb_samples {
	double *values; /* owned */
	size_t count;
	size_t capacity;
	bool sorted;
};

/* The figures that tables and JSON show for a set of samples. All are 0 if count is 0. */
struct kvb_summary {
	size_t count;
	double mean, p50, p90, p99, max;
};

void kvb_samples_add(struct kvb_samples *set, double value);
/*
 * Returns the p-th percentile, p within 0..100, by linear interpolation between the two nearest
 * ranks: rank (count - 1) * p / 100 counted from 0. 0 when there are no samples. Sorts the set.
 */
double kvb_samples_percentile(struct kvb_samples *set, double p);
double kvb_samples_mean(const struct kvb_samples *set);
/* The figures are those of the samples multiplied by scale. Sorts the set. */
struct kvb_summary kvb_samples_summary(struct kvb_samples *set, double scale);
void kvb_samples_finish(struct kvb_samples *set);

#endif
