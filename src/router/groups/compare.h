/*
 * compare.h - compares two groups, and tests whether they differ by more than chance.
 */
#ifndef KVW_GROUPS_COMPARE_H
#define KVW_GROUPS_COMPARE_H

#include <stdio.h>

#include "groups/samples.h"
#include "kvway/err.h"

/* A quantity of one group. */
struct kvw_estimate {
	bool known;
	double value, low, high; /* of 95 %; low = high: no interval is computed */
	double samples;
};

/* A mean of times, in seconds, with its variance from the buckets; independent: number of
 * independent values (a stream's are not). */
struct kvw_estimate kvw_estimate_mean(const struct kvw_samples_times *times, double independent);
/* A share, by Wilson. */
struct kvw_estimate kvw_estimate_share(double some, double all);

enum kvw_beyond {
	KVW_BEYOND_UNKNOWN, /* too few samples, or no interval is computed */
	KVW_BEYOND_NO,
	KVW_BEYOND_YES,
};

/* Whether two estimates differ by more than chance, at 95 %. */
enum kvw_beyond kvw_estimates_differ(const struct kvw_estimate *a, const struct kvw_estimate *b);

/* The compared numbers. seconds: between two readings; 0: since the start. */
struct kvw_comparison {
	const char *model, *names[2];
	double seconds;
	struct kvw_group_samples groups[2];
	struct kvw_fidelity_samples fidelity;
};

void kvw_comparison_print(const struct kvw_comparison *comparison, FILE *out);
enum kvw_err kvw_comparison_json(const struct kvw_comparison *comparison, FILE *out) KVW_MUST_CHECK;

#endif
