/*
 * histogram_test.c - a duration is counted in its bucket, by one thread or by several.
 */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>

#include "metrics/histogram.h"
#include "tests/unit/suite.h"

/* The table lookup agrees with the definition: the first bound that is not below the value. */
START_TEST(buckets_match_their_definition)
{
	static const uint64_t us[] = {1, 10, 11, 12, 13, 50, 75, 100, 1000, 2500, 60000000};
	size_t count = sizeof(us) / sizeof(us[0]);
	struct kvw_bounds bounds;

	kvw_bounds_init(&bounds, us, count, 1000);
	srand(11);
	for (int round = 0; round < 20000; round++) {
		struct kvw_histogram histogram = {0};
		struct kvw_histogram_sum sum = {0};
		int64_t value = (int64_t)((uint64_t)rand() << 20 >> (rand() % 52));
		size_t expected = 0;

		if (round < (int)count * 3) /* on the bounds, below and above them */
			value = (int64_t)us[round / 3] * 1000 + round % 3 - 1;
		while (expected < count && value > (int64_t)us[expected] * 1000)
			expected++;
		kvw_histogram_observe(&histogram, &bounds, value);
		kvw_histogram_collect(&histogram, &sum);
		ck_assert_msg(sum.buckets[expected] == 1, "value %lld", (long long)value);
		ck_assert_uint_eq(sum.count, 1);
		ck_assert_uint_eq(sum.sum_ns, (uint64_t)value);
	}
}
END_TEST

START_TEST(negative_durations_count_as_zero)
{
	static const uint64_t us[] = {1};
	struct kvw_histogram histogram = {0};
	struct kvw_histogram_sum sum = {0};
	struct kvw_bounds bounds;

	kvw_bounds_init(&bounds, us, 1, 1000);
	kvw_histogram_observe(&histogram, &bounds, -5);
	kvw_histogram_observe(&histogram, &bounds, INT64_MAX);
	kvw_histogram_collect(&histogram, &sum);
	ck_assert_uint_eq(sum.buckets[0], 1);
	ck_assert_uint_eq(sum.buckets[1], 1);
	ck_assert_uint_eq(sum.sum_ns, (uint64_t)INT64_MAX);
}
END_TEST

#define OBSERVED 100000

static struct kvw_bounds shared_bounds;
static struct kvw_histogram shared;

static void *observe_many(void *arg)
{
	for (int i = 0; i < OBSERVED; i++)
		kvw_histogram_observe_shared(&shared, &shared_bounds, i);
	return arg;
}

START_TEST(threads_that_share_a_histogram_lose_no_count)
{
	static const uint64_t ns[] = {999, 49999};
	struct kvw_histogram_sum sum = {0};
	pthread_t threads[4];

	kvw_bounds_init(&shared_bounds, ns, 2, 1);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, observe_many, NULL), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	kvw_histogram_collect(&shared, &sum);
	ck_assert_uint_eq(sum.buckets[0], 4 * 1000);
	ck_assert_uint_eq(sum.buckets[1], 4 * 49000);
	ck_assert_uint_eq(sum.buckets[2], 4 * (OBSERVED - 50000));
	ck_assert_uint_eq(sum.count, 4 * OBSERVED);
	ck_assert_uint_eq(sum.sum_ns, UINT64_C(4) * OBSERVED * (OBSERVED - 1) / 2);
}
END_TEST

/* Several shards into one sum. */
START_TEST(histograms_add_up)
{
	static const uint64_t us[] = {1, 2};
	struct kvw_histogram a = {0}, b = {0};
	struct kvw_histogram_sum sum = {0};
	struct kvw_bounds bounds;

	kvw_bounds_init(&bounds, us, 2, 1000);
	kvw_histogram_observe(&a, &bounds, 1000);
	kvw_histogram_observe(&b, &bounds, 1001);
	kvw_histogram_observe(&b, &bounds, 2001);
	kvw_histogram_collect(&a, &sum);
	kvw_histogram_collect(&b, &sum);
	for (int i = 0; i < 3; i++)
		ck_assert_uint_eq(sum.buckets[i], 1);
	ck_assert_uint_eq(sum.count, 3);
	ck_assert_uint_eq(sum.sum_ns, 4002);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("histogram");

	tcase_add_test(tcase, buckets_match_their_definition);
	tcase_add_test(tcase, negative_durations_count_as_zero);
	tcase_add_test(tcase, threads_that_share_a_histogram_lose_no_count);
	tcase_add_test(tcase, histograms_add_up);
	return run_tcase("histogram", tcase);
}
