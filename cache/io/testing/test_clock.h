/*
 * test_clock.h - a clock whose time a test sets.
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
	_Atomic int64_t now_ns;  /* monotonic time; its first value is set by the owner */
	_Atomic int64_t wall_ns; /* the difference between now_ns and the time since 1970 */
};

/* Makes the clock for kvt_config.clock; `clock` is borrowed. */
struct kvt_clock kvt_test_clock_use(struct kvt_test_clock *clock);

static inline void kvt_test_clock_advance(struct kvt_test_clock *clock, int64_t ns)
{
	atomic_fetch_add(&clock->now_ns, ns);
}

/* Returns the present time; that of the machine's monotonic clock if `clock` is NULL. */
int64_t kvt_test_clock_now(struct kvt_test_clock *clock);

#endif
