/*
 * test_clock.h - time that a test owns.
 *
 * The clock stands still until the test advances it, or until a layer of this folder waits: the
 * wait moves the clock to the next due operation, or by the longest allowed wait. So a test with
 * stalls of minutes takes no time, and no wait can hang. Any thread.
 */
#ifndef KVT_TEST_CLOCK_H
#define KVT_TEST_CLOCK_H

#include <stdatomic.h>

#include "kvtier/kvtier.h"

struct kvt_test_clock {
	_Atomic int64_t now_ns;  /* monotonic; the owner sets the first value */
	_Atomic int64_t wall_ns; /* added to now_ns gives the time since 1970 */
};

/* For kvt_config.clock; `clock` is borrowed. */
struct kvt_clock kvt_test_clock_use(struct kvt_test_clock *clock);

static inline void kvt_test_clock_advance(struct kvt_test_clock *clock, int64_t ns)
{
	atomic_fetch_add(&clock->now_ns, ns);
}

/* The present time; the machine's monotonic clock if `clock` is NULL. */
int64_t kvt_test_clock_now(struct kvt_test_clock *clock);

#endif
