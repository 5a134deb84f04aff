/*
 * stall_test.c - when an engine is thought to stand still, second by second.
 */
#include <check.h>
#include <string.h>

#include "base/clock.h"
#include "fleet/stall.h"
#include "tests/unit/suite.h"

#define S(n)  ((int64_t)((n) * (double)KVW_NS_PER_S))
#define LIMIT S(15)

static struct kvw_stall stall;
static int64_t now_ns;

static void setup(void)
{
	memset(&stall, 0, sizeof(stall));
	now_ns = S(1000);
}

/* What a worker does for so many seconds, its counters read every second. */
struct behaviour {
	bool heard, progress, running;
	uint32_t inflight;
};

/* Returns the first second at which it is judged so, or -1. */
static int second_of(enum kvw_stall_state state, struct behaviour b, int seconds)
{
	for (int s = 1; s <= seconds; s++) {
		now_ns += S(1);
		if (b.heard)
			kvw_stall_heard(&stall, now_ns);
		kvw_stall_read(&stall, stall.progress + b.progress, b.running, now_ns);
		if (kvw_stall_judge(&stall, b.inflight, LIMIT, now_ns) == state)
			return s;
	}
	return -1;
}

static struct behaviour stuck(uint32_t inflight)
{
	return (struct behaviour){.running = true, .inflight = inflight};
}

START_TEST(silence_and_still_counters_together)
{
	kvw_stall_sent(&stall, true, 0, now_ns);
	ck_assert_int_eq(second_of(KVW_STALL_SUSPECTED, stuck(4), 60), 5);
	ck_assert_int_eq(second_of(KVW_STALL_FOUND, stuck(4), 60), 10);
	kvw_stall_heard(&stall, now_ns);
	ck_assert_int_eq(kvw_stall_judge(&stall, 4, LIMIT, now_ns), KVW_STALL_NONE);
	ck_assert_int_eq(second_of(KVW_STALL_FOUND, stuck(4), 60), 15);
	ck_assert_int_eq(kvw_stall_judge(&stall, 0, LIMIT, now_ns), KVW_STALL_NONE); /* none waits */
}
END_TEST

START_TEST(what_keeps_an_engine_from_being_suspected)
{
	static const struct behaviour all[] = {
		{.heard = true, .inflight = 4, .running = true},
		{.progress = true, .inflight = 4, .running = true},
		{.inflight = 0, .running = true},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		setup();
		kvw_stall_sent(&stall, true, 0, now_ns);
		ck_assert_int_eq(second_of(KVW_STALL_SUSPECTED, all[i], 600), -1);
		ck_assert_int_eq(second_of(KVW_STALL_FOUND, all[i], 600), -1);
	}
}
END_TEST

/* Counters that were never read say nothing, however long it is silent. */
START_TEST(a_worker_without_counters_is_never_suspected)
{
	kvw_stall_sent(&stall, true, 0, now_ns);
	ck_assert_int_eq(kvw_stall_judge(&stall, 4, LIMIT, now_ns + S(3600)), KVW_STALL_NONE);
}
END_TEST

/* They stood still before the request came, too: that counts only from then on. */
START_TEST(an_idle_engine_gets_its_time)
{
	second_of(KVW_STALL_FOUND, (struct behaviour){0}, 600);
	kvw_stall_sent(&stall, true, 0, now_ns);
	ck_assert_int_eq(kvw_stall_judge(&stall, 1, LIMIT, now_ns), KVW_STALL_NONE);
	ck_assert_int_eq(second_of(KVW_STALL_FOUND, stuck(1), 60), 15);
}
END_TEST

START_TEST(three_times_the_longest_prefill)
{
	kvw_stall_sent(&stall, true, S(1), now_ns);
	kvw_stall_sent(&stall, false, S(20), now_ns);
	kvw_stall_sent(&stall, false, S(2), now_ns);
	ck_assert_int_eq(second_of(KVW_STALL_FOUND, stuck(3), 100), 60);
	setup();
	kvw_stall_sent(&stall, true, S(20), now_ns);
	kvw_stall_sent(&stall, true, 0, now_ns); /* that one has gone */
	ck_assert_int_eq(second_of(KVW_STALL_FOUND, stuck(1), 100), 15);
}
END_TEST

START_TEST(one_that_says_it_has_nothing_gets_twice_the_time)
{
	kvw_stall_sent(&stall, true, 0, now_ns);
	ck_assert_int_eq(second_of(KVW_STALL_FOUND, (struct behaviour){.inflight = 1}, 100), 30);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("stall");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, silence_and_still_counters_together);
	tcase_add_test(tc, what_keeps_an_engine_from_being_suspected);
	tcase_add_test(tc, a_worker_without_counters_is_never_suspected);
	tcase_add_test(tc, an_idle_engine_gets_its_time);
	tcase_add_test(tc, three_times_the_longest_prefill);
	tcase_add_test(tc, one_that_says_it_has_nothing_gets_twice_the_time);
	return run_tcase("stall", tc);
}
