/*
 * figures.h - what rounds measured, as JSON lines on standard output and a table on standard error.
 *
 * A ratio is the median of the ratios of pairs of the same round, ours by the peer's, since a shared
 * machine's speed changes from round to round; the spread is that of these ratios (without a peer, of
 * the values).
 */
#ifndef KVB_FIGURES_H
#define KVB_FIGURES_H

#include <stdint.h>

#include "bench/timing.h"

#define KVB_MOST_ROUNDS 64

/* One figure, with a value for each round. */
struct kvb_series {
	double ours[KVB_MOST_ROUNDS];
	double peer[KVB_MOST_ROUNDS]; /* 0: no peer */
	unsigned rounds;
};

void kvb_series_add(struct kvb_series *s, double ours, double peer);

/* peer NULL: none. more: further members, ", \"name\": value", or "". */
void kvb_series_print(const struct kvb_series *s, const char *metric, const char *unit,
	const char *peer, const char *more);

/* Prints a figure that is counted and not timed. */
void kvb_figure_print(const char *metric, double value, const char *unit, const char *more);

#endif
