/*
 * compare.h - compares two groups, and computes whether they differ by more than chance.
 */
#ifndef KVW_GROUPS_COMPARE_H
#define KVW_GROUPS_COMPARE_H

#include <stdio.h>

#include "groups/samples.h"
#include "kvway/err.h"

/* A quantity of one group. */
struct kvw_estimate {
	bool known;
	/* the value, and its interval of 95 %; low = high: there is no interval */
	double value, low, high;
	double samples;
};

/* Estimates a mean of times, in seconds, with a variance from the buckets. independent: number of
 * values that are independent of each other (those of one stream are not). */
struct kvw_estimate kvw_estimate_mean(const struct kvw_samples_times *times, double independent);
/* A share, by Wilson. */
struct kvw_estimate kvw_estimate_share(double some, double all);

enum kvw_beyond {
	KVW_BEYOND_UNKNOWN, /* there are too few samples, or there is no interval */
	KVW_BEYOND_NO,
	KVW_BEYOND_YES,
};

/* Returns whether two estimates differ by more than chance, at 95 %. */
enum kvw_beyond kvw_estimates_differ(const struct kvw_estimate *a, const struct kvw_estimate *b);

/* The numbers to compare. seconds: time between the two readings; 0: since the start. */
struct kvw_comparison {
	const char *model, *names[2];
	double seconds;
	struct kvw_group_samples groups[2];
	struct kvw_fidelity_samples fidelity;
};

void kvw_comparison_print(const struct kvw_comparison *comparison, FILE *out);
enum kvw_err kvw_comparison_json(const struct kvw_comparison *comparison, FILE *out) KVW_MUST_CHECK;

#endif
