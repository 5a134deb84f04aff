/*
 * clock.h - monotonic time in nanoseconds, and wall time for logs.
 *
 * Code that depends on time takes now_ns as an argument, so that tests can set it; only event loops
 * and threads' outermost functions read the clock.
 */
#ifndef KVW_CLOCK_H
#define KVW_CLOCK_H

#include <stdint.h>
#include <time.h>

#define KVW_NS_PER_MS INT64_C(1000000)
#define KVW_NS_PER_S  INT64_C(1000000000)

static inline int64_t kvw_clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * KVW_NS_PER_S + t.tv_nsec;
}

static inline int64_t kvw_clock_wall_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_REALTIME, &t);
	return (int64_t)t.tv_sec * KVW_NS_PER_S + t.tv_nsec;
}

#endif
