/*
 * bucket_test.c - buckets and days, with a clock of the test's own.
 */
#include <check.h>
#include <pthread.h>

#include "rates/bucket.h"
#include "tests/unit/suite.h"

#define SECOND INT64_C(1000000000)
#define START  (1000 * SECOND)

START_TEST(a_burst_and_then_the_rate)
{
	struct kvw_bucket bucket = {0};
	int64_t cost_ns = kvw_rate_ns(1, 600), burst_ns = 10 * SECOND;
	int taken = 0;

	ck_assert_int_eq(cost_ns, SECOND / 10);
	while (kvw_bucket_take(&bucket, cost_ns, burst_ns, START) == 0)
		taken++;
	ck_assert_int_eq(taken, 100);
	/* Ten times the rate for a minute: as many as come back, and what was refused costs nothing. */
	for (int64_t now = START; now < START + 60 * SECOND; now += SECOND / 100)
		taken += kvw_bucket_take(&bucket, cost_ns, burst_ns, now) == 0;
	ck_assert_int_ge(taken, 100 + 599);
	ck_assert_int_le(taken, 100 + 600);
}
END_TEST

START_TEST(the_wait_is_exact)
{
	struct kvw_bucket bucket = {0};
	int64_t burst_ns = SECOND, wait_ns;

	ck_assert_int_eq(kvw_bucket_take(&bucket, SECOND, burst_ns, START), 0);
	wait_ns = kvw_bucket_take(&bucket, SECOND / 4, burst_ns, START);
	ck_assert_int_eq(wait_ns, SECOND / 4);
	ck_assert_int_eq(kvw_bucket_wait_ns(&bucket, SECOND / 4, burst_ns, START), wait_ns);
	ck_assert_int_eq(kvw_bucket_take(&bucket, SECOND / 4, burst_ns, START + wait_ns - 1), 1);
	ck_assert_int_eq(kvw_bucket_take(&bucket, SECOND / 4, burst_ns, START + wait_ns), 0);
}
END_TEST

START_TEST(more_than_it_holds_is_owed)
{
	struct kvw_bucket bucket = {0};

	ck_assert_int_eq(kvw_bucket_take(&bucket, 30 * SECOND, SECOND, START), 0);
	ck_assert_int_eq(kvw_bucket_debt_ns(&bucket, START), 30 * SECOND);
	ck_assert_int_eq(kvw_bucket_take(&bucket, 30 * SECOND, SECOND, START + 1), 30 * SECOND - 1);
	ck_assert_int_eq(kvw_bucket_take(&bucket, 30 * SECOND, SECOND, START + 30 * SECOND), 0);
}
END_TEST

/* Answers that claim to be longer than any can be: what is owed stays owed. */
START_TEST(what_is_owed_has_an_end)
{
	struct kvw_bucket bucket = {0};
	int64_t cost_ns = kvw_rate_ns(INT64_MAX, 1);

	for (int i = 0; i < 1000; i++)
		kvw_bucket_owe(&bucket, cost_ns, START);
	ck_assert_int_gt(kvw_bucket_debt_ns(&bucket, START), cost_ns);
	ck_assert_int_gt(kvw_bucket_take(&bucket, cost_ns, cost_ns, START), cost_ns);
	kvw_bucket_owe(&bucket, cost_ns, INT64_C(1) << 40);
	ck_assert_int_gt(kvw_bucket_wait_ns(&bucket, 1, SECOND, START), cost_ns);
}
END_TEST

START_TEST(what_is_given_back_is_there_again_and_not_more)
{
	struct kvw_bucket bucket = {0};

	ck_assert_int_eq(kvw_bucket_take(&bucket, SECOND, SECOND, START), 0);
	kvw_bucket_give(&bucket, SECOND);
	ck_assert_int_eq(kvw_bucket_debt_ns(&bucket, START), 0);
	ck_assert_int_eq(kvw_bucket_take(&bucket, SECOND, SECOND, START), 0);
	/* Late, when it is full again: it does not get fuller. */
	kvw_bucket_give(&bucket, SECOND);
	ck_assert_int_eq(kvw_bucket_take(&bucket, SECOND, SECOND, START + 9 * SECOND), 0);
	ck_assert_int_gt(kvw_bucket_take(&bucket, 1, SECOND, START + 9 * SECOND), 0);
	kvw_bucket_owe(&bucket, SECOND, START + 9 * SECOND);
	ck_assert_int_eq(kvw_bucket_debt_ns(&bucket, START + 9 * SECOND), 2 * SECOND);
}
END_TEST

START_TEST(units_become_time)
{
	ck_assert_int_eq(kvw_rate_ns(60, 60), 60 * SECOND);
	ck_assert_int_eq(kvw_rate_ns(1000000, 1000000000), SECOND * 60 / 1000);
	ck_assert_int_eq(kvw_rate_ns(INT64_C(1) << 40, 1), INT64_C(100000000) * SECOND); /* bounded */
	ck_assert_int_eq(kvw_rate_ns(0, 5), 0);
}
END_TEST

START_TEST(a_day)
{
	struct kvw_day day = {0};

	ck_assert(kvw_day_take(&day, 60, 100, 20000));
	ck_assert(!kvw_day_take(&day, 41, 100, 20000));
	ck_assert(kvw_day_take(&day, 40, 100, 20000));
	ck_assert_int_eq(kvw_day_used(&day, 20000), 100);
	kvw_day_correct(&day, -30, 20000);
	ck_assert(kvw_day_take(&day, 30, 100, 20000));
	kvw_day_correct(&day, 50, 20000);
	ck_assert_int_eq(kvw_day_used(&day, 20000), 150);
	kvw_day_correct(&day, -1000, 20000);
	ck_assert_int_eq(kvw_day_used(&day, 20000), 0);
	/* The next one begins with nothing, and what ends late does not count in it. */
	ck_assert(kvw_day_take(&day, 100, 100, 20000));
	ck_assert_int_eq(kvw_day_used(&day, 20001), 0);
	ck_assert(kvw_day_take(&day, 500, 100, 20001)); /* more than a day has: when nothing was used */
	kvw_day_correct(&day, -100, 20000);
	ck_assert_int_eq(kvw_day_used(&day, 20001), 500);
	ck_assert(!kvw_day_take(&day, 1, 100, 20001));
}
END_TEST

static struct kvw_bucket shared;
static struct kvw_day shared_day;
static _Atomic int shared_taken, shared_of_day;

static void *take_all(void *arg)
{
	(void)arg;
	for (int i = 0; i < 20000; i++) {
		if (kvw_bucket_take(&shared, SECOND / 1000, 10 * SECOND, START) == 0)
			atomic_fetch_add(&shared_taken, 1);
		if (kvw_day_take(&shared_day, 1, 5000, 20000))
			atomic_fetch_add(&shared_of_day, 1);
	}
	return NULL;
}

START_TEST(threads_get_no_more_together)
{
	pthread_t threads[4];

	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, take_all, NULL), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	ck_assert_int_eq(shared_taken, 10000);
	ck_assert_int_eq(shared_of_day, 5000);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("bucket");

	tcase_add_test(tcase, a_burst_and_then_the_rate);
	tcase_add_test(tcase, the_wait_is_exact);
	tcase_add_test(tcase, more_than_it_holds_is_owed);
	tcase_add_test(tcase, what_is_owed_has_an_end);
	tcase_add_test(tcase, what_is_given_back_is_there_again_and_not_more);
	tcase_add_test(tcase, units_become_time);
	tcase_add_test(tcase, a_day);
	tcase_add_test(tcase, threads_get_no_more_together);
	return run_tcase("rates-bucket", tcase);
}
