/*
 * figures.c - what rounds measured, as JSON lines on standard output and a table on standard error.
 */
#include "bench/cache/memory/figures.h"
#include "bench/timing.h"

#ifndef KVB_BENCH
#define KVB_BENCH "cache" /* as bench/run.sh calls it */
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void kvb_series_add(struct kvb_series *s, double ours, double peer)
{
	if (s->rounds == KVB_MOST_ROUNDS)
		return;
	s->ours[s->rounds] = ours;
	s->peer[s->rounds++] = peer;
}

/* The values of one figure, sorted. */
struct sorted {
	double values[KVB_MOST_ROUNDS];
	unsigned n;
};

static struct sorted sort(const double *values, unsigned n)
{
	struct sorted s = {.n = n};

	memcpy(s.values, values, n * sizeof(*values));
	qsort(s.values, n, sizeof(*values), kvb_by_value);
	return s;
}

static double median(const struct sorted *s)
{
	return s->n % 2 == 1 ? s->values[s->n / 2]
			     : (s->values[s->n / 2 - 1] + s->values[s->n / 2]) / 2;
}

/* Prints a figure for people: rates in MB/s, others as they are. */
static void show(const char *metric, double value, const char *unit)
{
	if (strcmp(unit, "B/s") == 0)
		fprintf(stderr, "%-34s %10.0f MB/s", metric, value / 1e6);
	else
		fprintf(stderr, "%-34s %10.4g %-4s", metric, value, unit);
}

void kvb_series_print(const struct kvb_series *s, const char *metric, const char *unit,
	const char *peer, const char *more)
{
	struct sorted ours = sort(s->ours, s->rounds), theirs = sort(s->peer, s->rounds), ratios;

	if (s->rounds == 0)
		return;
	show(metric, median(&ours), unit);
	printf("{\"bench\": \"" KVB_BENCH "\", \"metric\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"",
		metric, median(&ours), unit);
	if (peer != NULL) {
		double each[KVB_MOST_ROUNDS];

		for (unsigned i = 0; i < s->rounds; i++)
			each[i] = s->ours[i] / s->peer[i];
		ratios = sort(each, s->rounds);
		printf(", \"peer\": \"%s\", \"ratio\": %.4g, \"peer_value\": %.6g, \"ratio_min\": "
		       "%.4g, "
		       "\"ratio_max\": %.4g",
			peer, median(&ratios), median(&theirs), ratios.values[0],
			ratios.values[ratios.n - 1]);
		fprintf(stderr, "  %.3f of %s (%.3f to %.3f)", median(&ratios), peer,
			ratios.values[0], ratios.values[ratios.n - 1]);
	} else {
		printf(", \"min\": %.6g, \"max\": %.6g", ours.values[0], ours.values[ours.n - 1]);
		fprintf(stderr, "  (%.4g to %.4g)", ours.values[0], ours.values[ours.n - 1]);
	}
	printf(", \"rounds\": %u%s}\n", s->rounds, more);
	fprintf(stderr, "%s\n", more);
	fflush(stdout);
}

void kvb_figure_print(const char *metric, double value, const char *unit, const char *more)
{
	show(metric, value, unit);
	fprintf(stderr, "  %s\n", more);
	printf("{\"bench\": \"" KVB_BENCH "\", \"metric\": \"%s\", \"value\": %.6g, \"unit\": \"%s\"%s}\n",
		metric, value, unit, more);
	fflush(stdout);
}
