/*
 * lag.h - the age of events when they are applied: a histogram since start, and recent quantiles.
 *
 * Written by one thread; kvw_lag_read may run in others at the same time. The quantiles are those
 * of a window of 30 to 60 seconds, to about a fifth of their value, and are computed by the writer
 * once a second.
 */
#ifndef KVW_LAG_H
#define KVW_LAG_H

#include <stdatomic.h>
#include <stdint.h>

#include "feeds/feed.h"

#define KVW_LAG_FINE 96 /* fine buckets of the window: four to an octave, from 16 us to 4 minutes */

/* Counts of lags. The owner zeroes it, then calls kvw_lag_init. */
struct kvw_lag {
	_Atomic uint64_t counts[KVW_FEED_LAGS + 1];
	_Atomic uint64_t sum_us;
	_Atomic int64_t p50_us, p99_us; /* -1: the window is empty */
	/* writer only */
	uint32_t halves[2][KVW_LAG_FINE];
	uint32_t half;     /* which half of the window is being filled */
	int64_t turned_ns; /* when that half was begun */
	int64_t told_ns;   /* when the quantiles were last computed */
};

void kvw_lag_init(struct kvw_lag *lag, int64_t now_ns);
void kvw_lag_add(struct kvw_lag *lag, int64_t lag_ns);
void kvw_lag_tick(struct kvw_lag *lag, int64_t now_ns);
void kvw_lag_read(const struct kvw_lag *lag, struct kvw_feed_stats *out);

#endif
