/*
 * lag.c - counts lags and computes recent quantiles.
 *
 * Two half windows: one is filled while the other still counts; every 30 seconds the older one is
 * emptied and filled next. A quantile is the upper bound of its fine bucket.
 */
#include "feeds/lag.h"

#include <string.h>

#include "base/clock.h"

#define HALF_NS (30 * KVW_NS_PER_S)
#define LEAST   4 /* octave of the first fine bucket, which starts at 16 us */

const double kvw_feed_lag_bounds[KVW_FEED_LAGS] = {
	0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 5, 30};

void kvw_lag_init(struct kvw_lag *lag, int64_t now_ns)
{
	lag->turned_ns = lag->told_ns = now_ns;
	atomic_store(&lag->p50_us, -1);
	atomic_store(&lag->p99_us, -1);
}

/* Returns the bucket of a lag in microseconds: its octave, and the two bits after the leading
 * one. */
static uint32_t fine_of(uint64_t us)
{
	uint32_t octave, bucket;

	if (us < (1u << LEAST))
		return 0;
	octave = 63 - (uint32_t)__builtin_clzll(us);
	bucket = (octave - LEAST) * 4 + (uint32_t)(us >> (octave - 2) & 3);
	return bucket < KVW_LAG_FINE ? bucket : KVW_LAG_FINE - 1;
}

static int64_t bound_of(uint32_t fine)
{
	return (int64_t)(fine % 4 + 5) << (fine / 4 + LEAST - 2);
}

static void add_one(_Atomic uint64_t *count, uint64_t n)
{
	atomic_store_explicit(
		count, atomic_load_explicit(count, memory_order_relaxed) + n, memory_order_relaxed);
}

void kvw_lag_add(struct kvw_lag *lag, int64_t lag_ns)
{
	uint64_t us = lag_ns > 0 ? (uint64_t)lag_ns / 1000 : 0;
	uint32_t bucket = 0;

	while (bucket < KVW_FEED_LAGS && (double)us > kvw_feed_lag_bounds[bucket] * 1e6)
		bucket++;
	add_one(&lag->counts[bucket], 1);
	add_one(&lag->sum_us, us);
	lag->halves[lag->half][fine_of(us)]++;
}

/* Returns the smallest bound below which at least `share` of the window lies; -1: the window is
 * empty. */
static int64_t quantile(const struct kvw_lag *lag, double share)
{
	uint64_t total = 0, seen = 0;
	uint32_t i = 0;

	for (uint32_t k = 0; k < KVW_LAG_FINE; k++)
		total += lag->halves[0][k] + lag->halves[1][k];
	if (total == 0)
		return -1;
	for (; i < KVW_LAG_FINE - 1; i++) {
		seen += lag->halves[0][i] + lag->halves[1][i];
		if ((double)seen >= share * (double)total)
			break;
	}
	return bound_of(i);
}

void kvw_lag_tick(struct kvw_lag *lag, int64_t now_ns)
{
	if (now_ns - lag->told_ns < KVW_NS_PER_S)
		return;
	lag->told_ns = now_ns;
	atomic_store_explicit(&lag->p50_us, quantile(lag, 0.5), memory_order_relaxed);
	atomic_store_explicit(&lag->p99_us, quantile(lag, 0.99), memory_order_relaxed);
	if (now_ns - lag->turned_ns < HALF_NS)
		return;
	lag->turned_ns = now_ns;
	lag->half = 1 - lag->half;
	memset(lag->halves[lag->half], 0, sizeof(lag->halves[lag->half]));
}

static double ms_of(int64_t us)
{
	return us < 0 ? -1 : (double)us / 1000;
}

void kvw_lag_read(const struct kvw_lag *lag, struct kvw_feed_stats *out)
{
	for (uint32_t i = 0; i <= KVW_FEED_LAGS; i++)
		out->lags[i] = atomic_load_explicit(&lag->counts[i], memory_order_relaxed);
	out->lag_sum_s = (double)atomic_load_explicit(&lag->sum_us, memory_order_relaxed) / 1e6;
	out->lag_p50_ms = ms_of(atomic_load_explicit(&lag->p50_us, memory_order_relaxed));
	out->lag_p99_ms = ms_of(atomic_load_explicit(&lag->p99_us, memory_order_relaxed));
}
