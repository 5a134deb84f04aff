/*
 * budget_test.c - how many requests may be sent to another worker.
 */
#include <check.h>

#include "base/clock.h"
#include "proxy/retry.h"
#include "tests/unit/suite.h"

static struct kvw_budget budget;
static int64_t now_ns;

static void setup(void)
{
	now_ns = 1000 * KVW_NS_PER_S;
	ck_assert(kvw_budget_init(&budget, now_ns));
}

static void teardown(void)
{
	kvw_budget_finish(&budget);
}

/* Takes until the account is empty. */
static int take_all(void)
{
	int n = 0;

	while (kvw_budget_take(&budget))
		ck_assert_int_lt(n++, 1000000);
	return n;
}

START_TEST(begins_full_and_gets_three_a_second)
{
	ck_assert_int_eq(take_all(), 30);
	for (int s = 0; s < 5; s++) {
		now_ns += KVW_NS_PER_S;
		kvw_budget_pay(&budget, 0, 0.2, now_ns);
		ck_assert_int_eq(take_all(), 3);
	}
	now_ns += 3600 * KVW_NS_PER_S;
	kvw_budget_pay(&budget, 0, 0.2, now_ns);
	ck_assert_int_eq(take_all(), 30);
}
END_TEST

/* 1,000 requests a second, all of which fail: one in five is repeated, and 3 a second. */
START_TEST(a_share_of_all_requests)
{
	int taken = 0;

	take_all();
	for (int i = 0; i < 20000; i++) {
		if (i % KVW_BUDGET_BATCH == 0)
			kvw_budget_pay(&budget, KVW_BUDGET_BATCH, 0.2,
				now_ns + (int64_t)i * KVW_NS_PER_MS);
		taken += kvw_budget_take(&budget);
	}
	ck_assert_int_ge(taken, 4000);
	ck_assert_int_le(taken, 4080);
}
END_TEST

/* After ten seconds of it without a failure, those that wait on a dead worker find enough. */
START_TEST(holds_what_the_last_seconds_paid)
{
	int taken;

	for (int s = 0; s < 60; s++) {
		now_ns += KVW_NS_PER_S;
		kvw_budget_pay(&budget, 100, 0.2, now_ns);
	}
	taken = take_all();
	ck_assert_int_ge(taken, 230);
	ck_assert_int_le(taken, 460);
}
END_TEST

START_TEST(a_share_of_zero_leaves_three_a_second)
{
	take_all();
	now_ns += 2 * KVW_NS_PER_S;
	kvw_budget_pay(&budget, 1000, 0, now_ns);
	ck_assert_int_eq(take_all(), 6);
	kvw_budget_pay(&budget, 1000, 0, now_ns - KVW_NS_PER_S); /* another loop's clock */
	ck_assert_int_eq(take_all(), 0);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("budget");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, begins_full_and_gets_three_a_second);
	tcase_add_test(tc, a_share_of_all_requests);
	tcase_add_test(tc, holds_what_the_last_seconds_paid);
	tcase_add_test(tc, a_share_of_zero_leaves_three_a_second);
	return run_tcase("budget", tc);
}
