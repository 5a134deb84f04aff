/*
 * timing.h - clocks and medians of bench programs.
 */
#ifndef KVB_TIMING_H
#define KVB_TIMING_H

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

static inline int64_t kvb_read_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline double kvb_seconds(void)
{
	return (double)kvb_read_ns(CLOCK_MONOTONIC) * 1e-9;
}

/* Returns the processor time of this thread. */
static inline double kvb_cpu_seconds(void)
{
	return (double)kvb_read_ns(CLOCK_THREAD_CPUTIME_ID) * 1e-9;
}

/* For qsort: of double, and of uint32_t. */
static inline int kvb_by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static inline int kvb_by_u32(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

/* Sorts the values and returns the middle one, the upper one of two. */
static inline double kvb_median(double *values, size_t count)
{
	qsort(values, count, sizeof(*values), kvb_by_value);
	return values[count / 2];
}

#endif
