/*
 * capacity_share_test.c - assumed capacity follows what answers say of predicted hits.
 */
#include <stdlib.h>

#include "support.h"
#include "routing/capacity_share.h"
#include "tests/unit/suite.h"

static struct kvw_capacity_share shares;

static void setup(void)
{
	kvw_capacity_share_init(&shares);
}

static double share(uint32_t worker)
{
	return (double)kvw_capacity_share_capacity(&shares, worker, 1000000) / 1000000;
}

/* `wrong` of a thousand hits of 3,000 tokens find nothing. */
static void serve(unsigned wrong, unsigned count)
{
	uint64_t dice = wrong;

	for (unsigned i = 0; i < count; i++) {
		bool failed = test_random(&dice) % 1000 < wrong;

		kvw_capacity_share_learn(&shares, 0, 4000, 3000, failed ? 0 : 3000);
	}
}

START_TEST(all_is_assumed_at_first)
{
	ck_assert_double_eq(share(0), 1);
	ck_assert_uint_eq(kvw_capacity_share_capacity(&shares, 5, 0), 0);
	ck_assert_uint_eq(kvw_capacity_share_capacity(&shares, 5, UINT64_C(1) << 50), UINT64_C(1) << 50);
}
END_TEST

START_TEST(failed_hits_shrink_to_a_quarter_at_most)
{
	double before = share(0);

	for (unsigned i = 0; i < 1000; i++) {
		kvw_capacity_share_learn(&shares, 0, 4000, 3000, 0);
		ck_assert_double_le(share(0), before);
		ck_assert_double_ge(share(0), KVW_CAPACITY_SHARE_LEAST);
		before = share(0);
	}
	ck_assert_double_eq(before, KVW_CAPACITY_SHARE_LEAST);
	ck_assert_double_eq(share(1), 1);
	ck_assert_uint_eq(kvw_capacity_share_capacity(&shares, 0, 1), 1);
}
END_TEST

/* A part that failed counts as that part. */
START_TEST(partial_hits_shrink_less)
{
	kvw_capacity_share_learn(&shares, 0, 4000, 3000, 0);
	kvw_capacity_share_learn(&shares, 1, 4000, 3000, 1500);
	ck_assert_double_lt(share(0), share(1));
	ck_assert_double_lt(share(1), 1);
	ck_assert_double_eq_tol((1 - share(0)) / (1 - share(1)), 2, 0.01);
}
END_TEST

START_TEST(good_hits_restore_slowly)
{
	unsigned good = 0;

	serve(1000, 200);
	for (; share(0) < 0.9; good++)
		kvw_capacity_share_learn(&shares, 0, 4000, 3000, 3000);
	ck_assert_uint_gt(good, 200);
	ck_assert_uint_lt(good, 2000);
	serve(0, 3000);
	ck_assert_double_eq(share(0), 1);
}
END_TEST

/* Where it comes to rest depends on how often hits fail. */
START_TEST(share_follows_the_part_of_failed_hits)
{
	serve(20, 20000);
	ck_assert_double_gt(share(0), 0.75);
	ck_assert_double_lt(share(0), 0.95);
	serve(100, 20000);
	ck_assert_double_gt(share(0), 0.35);
	ck_assert_double_lt(share(0), 0.65);
	serve(400, 20000);
	ck_assert_double_lt(share(0), 0.27);
}
END_TEST

/* Template tokens and the ratio of text to tokens are no failed hits. */
START_TEST(small_differences_are_no_error)
{
	for (unsigned i = 0; i < 1000; i++) {
		kvw_capacity_share_learn(&shares, 0, 4000, 3000, 2900);
		kvw_capacity_share_learn(&shares, 0, 4000, 3000, 3100);
		kvw_capacity_share_learn(&shares, 0, 100, 48, 0);
		kvw_capacity_share_learn(&shares, 0, 4000, 0, 0);
	}
	ck_assert_double_eq(share(0), 1);
}
END_TEST

/* Hits that were not predicted show that more is kept than is assumed. */
START_TEST(unforeseen_hits_restore_faster)
{
	double after = 0;

	kvw_capacity_share_learn(&shares, 1, 4000, 3000, 0);
	kvw_capacity_share_learn(&shares, 0, 4000, 3000, 0);
	after = share(0);
	kvw_capacity_share_learn(&shares, 0, 4000, 3000, 3000);
	kvw_capacity_share_learn(&shares, 1, 4000, 0, 3000);
	ck_assert_double_gt(share(0), after);
	ck_assert_double_gt(share(1), share(0));
}
END_TEST

START_TEST(restart_forgets)
{
	serve(1000, 200);
	kvw_capacity_share_restart(&shares, 0);
	ck_assert_double_eq(share(0), 1);
}
END_TEST

START_TEST(any_numbers_stay_in_range)
{
	uint64_t dice = 5;

	for (unsigned i = 0; i < 100000; i++) {
		kvw_capacity_share_learn(&shares, 0, (uint32_t)test_random(&dice),
			(uint32_t)test_random(&dice) >> (test_random(&dice) % 32),
			(uint32_t)test_random(&dice) >> (test_random(&dice) % 32));
		EXPECT(share(0) >= KVW_CAPACITY_SHARE_LEAST - 1e-6 && share(0) <= 1);
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("capacity_share");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, all_is_assumed_at_first);
	tcase_add_test(tcase, failed_hits_shrink_to_a_quarter_at_most);
	tcase_add_test(tcase, partial_hits_shrink_less);
	tcase_add_test(tcase, good_hits_restore_slowly);
	tcase_add_test(tcase, share_follows_the_part_of_failed_hits);
	tcase_add_test(tcase, small_differences_are_no_error);
	tcase_add_test(tcase, unforeseen_hits_restore_faster);
	tcase_add_test(tcase, restart_forgets);
	tcase_add_test(tcase, any_numbers_stay_in_range);
	return run_tcase("capacity_share", tcase);
}
