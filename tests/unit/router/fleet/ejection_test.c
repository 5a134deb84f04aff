/*
 * ejection_test.c - when a worker is left out because of its answers, and how it comes back.
 */
#include <check.h>
#include <pthread.h>
#include <string.h>

#include "base/clock.h"
#include "fleet/ejection.h"
#include "tests/unit/suite.h"

#define WORKERS 5
#define S(n)    ((int64_t)((n) * (double)KVW_NS_PER_S))

static struct kvw_config config;
static struct kvw_ejections all;
static struct kvw_ejection workers[WORKERS];
static int64_t now_ns;

static void setup(void)
{
	config = (struct kvw_config){.health_passive_failures = 3,
		.ejection_bad_share = 0.5,
		.ejection_window_ms = 10000,
		.ejection_min_answers = 10,
		.ejection_time_ms = 2000,
		.ejection_max_time_ms = 60000,
		.ejection_max_share = 0.5};
	memset(workers, 0, sizeof(workers));
	now_ns = S(1000);
	ck_assert_int_eq(kvw_ejections_init(&all, &config), KVW_OK);
	kvw_ejections_set_workers(&all, WORKERS);
}

static void teardown(void)
{
	kvw_ejections_finish(&all);
}

static enum kvw_ejection_change answers(size_t worker, enum kvw_grade grade, int count)
{
	enum kvw_ejection_change change = KVW_EJECTION_NO_CHANGE;
	int64_t ms;

	for (int i = 0; i < count && change == KVW_EJECTION_NO_CHANGE; i++)
		change = kvw_ejection_judge(&all, &workers[worker], grade, false, now_ns, &ms);
	return change;
}

static enum kvw_ejection_change trial(size_t worker, enum kvw_grade grade, int64_t *for_ms)
{
	ck_assert(kvw_ejection_try(&all, &workers[worker], now_ns));
	return kvw_ejection_judge(&all, &workers[worker], grade, true, now_ns, for_ms);
}

START_TEST(bad_answers_in_a_row)
{
	answers(0, KVW_GRADE_GOOD, 100);
	ck_assert_int_eq(answers(0, KVW_GRADE_BAD, 2), KVW_EJECTION_NO_CHANGE);
	ck_assert_int_eq(answers(0, KVW_GRADE_NONE, 5), KVW_EJECTION_NO_CHANGE);
	ck_assert_int_eq(answers(0, KVW_GRADE_BAD, 1), KVW_EJECTION_EJECTED);
	ck_assert(!kvw_ejection_allows(&workers[0], now_ns));
	ck_assert(kvw_ejection_allows(&workers[1], now_ns));
	ck_assert_uint_eq(workers[0].ejections, 1);
	ck_assert_uint_eq(workers[0].bad, 3);
}
END_TEST

/* Never three in a row: every other answer is bad. */
START_TEST(too_large_a_share_of_bad_answers)
{
	int pairs = 0;

	while (answers(0, KVW_GRADE_GOOD, 1) == KVW_EJECTION_NO_CHANGE &&
		answers(0, KVW_GRADE_BAD, 1) == KVW_EJECTION_NO_CHANGE)
		ck_assert_int_lt(++pairs, 20);
	ck_assert_int_eq(pairs, 4); /* with the fifth pair there are ten answers */
	ck_assert_int_eq(kvw_ejection_state(&workers[0]), KVW_EJECTION_OUT);

	for (int i = 0; i < 1000; i++) {
		ck_assert_int_eq(answers(1, KVW_GRADE_GOOD, 2), KVW_EJECTION_NO_CHANGE);
		ck_assert_int_eq(answers(1, KVW_GRADE_BAD, 1), KVW_EJECTION_NO_CHANGE);
	}
}
END_TEST

/* Streams that begin well and break: those that are under way were graded good. */
START_TEST(streams_that_turn_bad)
{
	int turned = 0;

	ck_assert_int_eq(answers(0, KVW_GRADE_GOOD, 3), KVW_EJECTION_NO_CHANGE); /* under way */
	config.ejection_min_answers = 5;
	while (answers(0, KVW_GRADE_GOOD, 1) == KVW_EJECTION_NO_CHANGE &&
		answers(0, KVW_GRADE_TURNED_BAD, 1) == KVW_EJECTION_NO_CHANGE)
		ck_assert_int_lt(++turned, 20);
	ck_assert_int_eq(turned, 2); /* the third makes 3 of 6 */
	ck_assert_uint_eq(workers[0].bad, 3);
}
END_TEST

START_TEST(a_window_forgets)
{
	for (int i = 0; i < 100; i++) {
		ck_assert_int_eq(answers(0, KVW_GRADE_BAD, 1), KVW_EJECTION_NO_CHANGE);
		ck_assert_int_eq(answers(0, KVW_GRADE_GOOD, 1), KVW_EJECTION_NO_CHANGE);
		now_ns += S(3); /* at most 8 answers in 10 s, which say nothing */
	}
	now_ns += S(100);
	answers(0, KVW_GRADE_GOOD, 10000);
	now_ns += S(10); /* as if they had not been */
	for (int i = 0; i < 5; i++) {
		answers(0, KVW_GRADE_GOOD, 1);
		if (answers(0, KVW_GRADE_BAD, 1) != KVW_EJECTION_NO_CHANGE)
			ck_assert_int_eq(i, 4);
	}
	ck_assert_int_eq(kvw_ejection_state(&workers[0]), KVW_EJECTION_OUT);
}
END_TEST

START_TEST(times_double_up_to_the_longest)
{
	static const int64_t least[] = {2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000};
	int64_t ms = 0;

	for (size_t i = 0; i < sizeof(least) / sizeof(least[0]); i++) {
		if (i == 0) {
			answers(0, KVW_GRADE_BAD, 2);
			ck_assert_int_eq(kvw_ejection_judge(&all, &workers[0], KVW_GRADE_BAD, false,
						 now_ns, &ms),
				KVW_EJECTION_EJECTED);
		} else {
			ck_assert_int_eq(trial(0, KVW_GRADE_BAD, &ms), KVW_EJECTION_EJECTED);
		}
		ck_assert_int_ge(ms, least[i]);
		ck_assert_int_le(ms, least[i] + least[i] / 5);
		ck_assert(!kvw_ejection_allows(&workers[0], now_ns + (ms - 1) * KVW_NS_PER_MS));
		now_ns += ms * KVW_NS_PER_MS;
		ck_assert(kvw_ejection_allows(&workers[0], now_ns));
	}
	ck_assert_int_eq(trial(0, KVW_GRADE_GOOD, &ms), KVW_EJECTION_BACK);
	now_ns += S(59);
	answers(0, KVW_GRADE_BAD, 2);
	kvw_ejection_judge(&all, &workers[0], KVW_GRADE_BAD, false, now_ns, &ms);
	ck_assert_int_ge(ms, 60000); /* soon after the last */
	now_ns += ms * KVW_NS_PER_MS;
	ck_assert_int_eq(trial(0, KVW_GRADE_GOOD, &ms), KVW_EJECTION_BACK);
	now_ns += S(61);
	answers(0, KVW_GRADE_BAD, 2);
	kvw_ejection_judge(&all, &workers[0], KVW_GRADE_BAD, false, now_ns, &ms);
	ck_assert_int_lt(ms, 2500); /* long after it */
}
END_TEST

START_TEST(one_request_tries_and_only_its_grade_counts)
{
	int64_t ms;

	answers(0, KVW_GRADE_BAD, 3);
	ck_assert(!kvw_ejection_try(&all, &workers[0], now_ns));
	now_ns += S(3);
	ck_assert(kvw_ejection_try(&all, &workers[0], now_ns));
	ck_assert(!kvw_ejection_allows(&workers[0], now_ns));
	ck_assert(!kvw_ejection_try(&all, &workers[0], now_ns));
	ck_assert_int_eq(answers(0, KVW_GRADE_GOOD, 50), KVW_EJECTION_NO_CHANGE);
	ck_assert_int_eq(answers(0, KVW_GRADE_BAD, 50), KVW_EJECTION_NO_CHANGE);
	ck_assert_int_eq(kvw_ejection_state(&workers[0]), KVW_EJECTION_TRIAL);
	/* Its client left: the next request tries. */
	ck_assert_int_eq(kvw_ejection_judge(&all, &workers[0], KVW_GRADE_NONE, true, now_ns, &ms),
		KVW_EJECTION_NO_CHANGE);
	ck_assert(kvw_ejection_allows(&workers[0], now_ns));
	ck_assert_int_eq(trial(0, KVW_GRADE_GOOD, &ms), KVW_EJECTION_BACK);
	ck_assert(kvw_ejection_allows(&workers[0], now_ns));
	ck_assert_int_eq(answers(0, KVW_GRADE_BAD, 2), KVW_EJECTION_NO_CHANGE); /* counted from 0 */
}
END_TEST

START_TEST(at_most_a_share_of_the_workers_is_out)
{
	int64_t ms;

	for (size_t i = 0; i < WORKERS; i++)
		ck_assert_int_eq(answers(i, KVW_GRADE_BAD, 20),
			i < 2 ? KVW_EJECTION_EJECTED : KVW_EJECTION_NO_CHANGE);
	ck_assert_uint_eq(all.out, 2);
	ck_assert_uint_eq(all.refused, 3 * 18);
	now_ns += S(3);
	ck_assert_int_eq(trial(0, KVW_GRADE_GOOD, &ms), KVW_EJECTION_BACK);
	ck_assert_int_eq(answers(2, KVW_GRADE_BAD, 1), KVW_EJECTION_EJECTED);
	config.ejection_max_share = 0;
	now_ns += S(3);
	ck_assert_int_eq(trial(1, KVW_GRADE_GOOD, &ms), KVW_EJECTION_BACK);
	ck_assert_int_eq(answers(1, KVW_GRADE_BAD, 20), KVW_EJECTION_NO_CHANGE);
}
END_TEST

START_TEST(a_new_process_is_tried_at_once)
{
	int64_t ms;

	answers(0, KVW_GRADE_BAD, 3);
	kvw_ejection_hasten(&all, &workers[0], now_ns);
	ck_assert_int_eq(trial(0, KVW_GRADE_BAD, &ms), KVW_EJECTION_EJECTED);
	ck_assert_int_lt(ms, 2500); /* it begins again with the shortest time */
	kvw_ejection_hasten(&all, &workers[1], now_ns);
	ck_assert_int_eq(kvw_ejection_state(&workers[1]), KVW_EJECTION_IN);
}
END_TEST

static void *judge_much(void *arg)
{
	unsigned random = (unsigned)(uintptr_t)arg;

	for (int i = 0; i < 50000; i++) {
		struct kvw_ejection *worker = &workers[i % WORKERS];
		int64_t at_ns = S(1000) + (int64_t)i * KVW_NS_PER_MS, ms;
		bool mine;

		random = random * 1103515245 + 12345;
		mine = kvw_ejection_state(worker) == KVW_EJECTION_OUT &&
		       kvw_ejection_try(&all, worker, at_ns);
		kvw_ejection_judge(&all, worker,
			(random >> 16) % 3 == 0 ? KVW_GRADE_GOOD : KVW_GRADE_BAD, mine, at_ns, &ms);
		if ((random >> 8) % 64 == 0)
			kvw_ejection_hasten(&all, worker, at_ns);
	}
	return NULL;
}

START_TEST(threads_keep_the_count_of_those_that_are_out)
{
	pthread_t threads[4];
	size_t out = 0;

	for (uintptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, judge_much, (void *)(i + 1)), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (size_t i = 0; i < WORKERS; i++) {
		ck_assert_int_ne(kvw_ejection_state(&workers[i]), KVW_EJECTION_TRIAL);
		out += kvw_ejection_state(&workers[i]) == KVW_EJECTION_OUT;
	}
	ck_assert_uint_eq(all.out, out);
	ck_assert_uint_le(out, 2);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("ejection");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, bad_answers_in_a_row);
	tcase_add_test(tc, too_large_a_share_of_bad_answers);
	tcase_add_test(tc, streams_that_turn_bad);
	tcase_add_test(tc, a_window_forgets);
	tcase_add_test(tc, times_double_up_to_the_longest);
	tcase_add_test(tc, one_request_tries_and_only_its_grade_counts);
	tcase_add_test(tc, at_most_a_share_of_the_workers_is_out);
	tcase_add_test(tc, a_new_process_is_tried_at_once);
	tcase_add_test(tc, threads_keep_the_count_of_those_that_are_out);
	return run_tcase("ejection", tc);
}
