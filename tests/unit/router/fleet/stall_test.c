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

/* As it would be judged with so many requests waiting. */
static enum kvw_stall_state judge(uint32_t waiting)
{
	atomic_store(&stall.waiting, waiting);
	return kvw_stall_judge(&stall, LIMIT, now_ns);
}

/* The first request, where none waits. */
static void begins(int64_t prefill_ns)
{
	atomic_store(&stall.waiting, 0);
	kvw_stall_wait(&stall, prefill_ns, now_ns);
}

/* What a worker does for so many seconds, its counters read every second. */
struct behaviour {
	bool heard, progress, running;
	uint32_t waiting;
};

/* Returns the first second at which it is judged so, or -1. */
static int second_of(enum kvw_stall_state state, struct behaviour b, int seconds)
{
	for (int s = 1; s <= seconds; s++) {
		now_ns += S(1);
		if (b.heard)
			kvw_stall_heard(&stall, now_ns);
		kvw_stall_read(&stall, stall.progress + b.progress, b.running, now_ns);
		if (judge(b.waiting) == state)
			return s;
	}
	return -1;
}

static struct behaviour stuck(uint32_t waiting)
{
	return (struct behaviour){.running = true, .waiting = waiting};
}

START_TEST(silence_and_still_counters_together)
{
	begins(0);
	ck_assert_int_eq(second_of(KVW_STALL_SUSPECTED, stuck(4), 60), 5);
	ck_assert_int_eq(second_of(KVW_STALL_FOUND, stuck(4), 60), 10);
	kvw_stall_heard(&stall, now_ns);
	ck_assert_int_eq(judge(4), KVW_STALL_NONE);
	ck_assert_int_eq(second_of(KVW_STALL_FOUND, stuck(4), 60), 15);
	ck_assert_int_eq(judge(0), KVW_STALL_NONE); /* none waits */
}
END_TEST

START_TEST(what_keeps_an_engine_from_being_suspected)
{
	static const struct behaviour all[] = {
		{.heard = true, .waiting = 4, .running = true},
		{.progress = true, .waiting = 4, .running = true},
		{.waiting = 0, .running = true},
	};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		setup();
		begins(0);
		ck_assert_int_eq(second_of(KVW_STALL_SUSPECTED, all[i], 600), -1);
		ck_assert_int_eq(second_of(KVW_STALL_FOUND, all[i], 600), -1);
	}
}
END_TEST

/* Counters that were never read say nothing, however long it is silent. */
START_TEST(a_worker_without_counters_is_never_suspected)
{
	begins(0);
	ck_assert_int_eq((now_ns += S(3600), judge(4)), KVW_STALL_NONE);
}
END_TEST

/* They stood still before the request came, too: that counts only from then on. */
START_TEST(an_idle_engine_gets_its_time)
{
	second_of(KVW_STALL_FOUND, (struct behaviour){0}, 600);
	begins(0);
	ck_assert_int_eq(judge(1), KVW_STALL_NONE);
	ck_assert_int_eq(second_of(KVW_STALL_FOUND, stuck(1), 60), 15);
}
END_TEST

START_TEST(three_times_the_longest_prefill)
{
	begins(S(1));
	kvw_stall_wait(&stall, S(20), now_ns);
	kvw_stall_wait(&stall, S(2), now_ns);
	ck_assert_int_eq(second_of(KVW_STALL_FOUND, stuck(3), 100), 60);
	setup();
	begins(S(20));
	begins(0); /* that one has gone */
	ck_assert_int_eq(second_of(KVW_STALL_FOUND, stuck(1), 100), 15);
}
END_TEST

START_TEST(one_that_says_it_has_nothing_gets_twice_the_time)
{
	begins(0);
	ck_assert_int_eq(second_of(KVW_STALL_FOUND, (struct behaviour){.waiting = 1}, 100), 30);
}
END_TEST

START_TEST(notes_when_the_counters_moved)
{
	kvw_stall_read(&stall, 5, true, S(1));
	ck_assert_int_eq(kvw_stall_moved_ns(&stall), 0); /* since when they are 5 is not known */
	kvw_stall_read(&stall, 5, true, S(2));
	ck_assert_int_eq(kvw_stall_moved_ns(&stall), 0);
	kvw_stall_read(&stall, 6, true, S(3));
	kvw_stall_read(&stall, 6, true, S(4));
	ck_assert_int_eq(kvw_stall_moved_ns(&stall), S(3));
	kvw_stall_read(&stall, 1, true, S(5)); /* of another process, which has none of these streams */
	ck_assert_int_eq(kvw_stall_moved_ns(&stall), S(3));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("stall");

	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_test(tc, notes_when_the_counters_moved);
	tcase_add_test(tc, silence_and_still_counters_together);
	tcase_add_test(tc, what_keeps_an_engine_from_being_suspected);
	tcase_add_test(tc, a_worker_without_counters_is_never_suspected);
	tcase_add_test(tc, an_idle_engine_gets_its_time);
	tcase_add_test(tc, three_times_the_longest_prefill);
	tcase_add_test(tc, one_that_says_it_has_nothing_gets_twice_the_time);
	return run_tcase("stall", tc);
}
