/*
 * test_clock.c - a clock that stands still until a test, or a wait in a layer, moves it.
 */
#include <time.h>

#include "io/testing/test_clock.h"

static int64_t now_ns(void *self)
{
	struct kvt_test_clock *clock = self;

	return atomic_load(&clock->now_ns);
}

static int64_t wall_ns(void *self)
{
	struct kvt_test_clock *clock = self;

	return atomic_load(&clock->now_ns) + atomic_load(&clock->wall_ns);
}

struct kvt_clock kvt_test_clock_use(struct kvt_test_clock *clock)
{
	return (struct kvt_clock){.now_ns = now_ns, .wall_ns = wall_ns, .self = clock};
}

int64_t kvt_test_clock_now(struct kvt_test_clock *clock)
{
	struct timespec t;

	if (clock != NULL)
		return atomic_load(&clock->now_ns);
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}
