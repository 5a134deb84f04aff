/*
 * group_choice_test.c - the shares of groups, and what moves when a weight changes.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "routing/group_choice.h"
#include "tests/unit/suite.h"

#define KEYS 100000

#define STABLE UINT64_C(0x1234)
#define CANARY UINT64_C(0x777000)
#define THIRD  UINT64_C(0x9)

/* Keys as bad as they get: consecutive numbers. */
static size_t chosen(const struct kvw_group_share *shares, size_t count, uint64_t key)
{
	uint8_t order[KVW_GROUPS_MOST];

	ck_assert_uint_gt(kvw_group_order(shares, count, key, order), 0);
	return order[0];
}

START_TEST(test_shares_are_those_of_the_weights)
{
	const struct kvw_group_share shares[] = {{STABLE, 90}, {CANARY, 10}};
	uint64_t canary = 0;

	for (uint64_t key = 0; key < KEYS; key++)
		canary += chosen(shares, 2, key) == 1;
	ck_assert_msg(fabs((double)canary / KEYS - 0.10) < 0.005, "%llu", (unsigned long long)canary);
}
END_TEST

START_TEST(test_a_changed_weight_moves_only_the_difference)
{
	const struct kvw_group_share before[] = {{STABLE, 60}, {CANARY, 10}, {THIRD, 30}};
	const struct kvw_group_share after[] = {{STABLE, 60}, {CANARY, 35}, {THIRD, 30}};
	double grown = 35.0 / 125 - 10.0 / 100;
	uint64_t moved = 0;

	for (uint64_t key = 0; key < KEYS; key++) {
		size_t was = chosen(before, 3, key), is = chosen(after, 3, key);

		moved += was != is;
		ck_assert(was == is || is == 1); /* to the one that has grown, and from no other to another */
	}
	ck_assert_msg(fabs((double)moved / KEYS - grown) < 0.005, "%llu", (unsigned long long)moved);
}
END_TEST

START_TEST(test_order_of_the_list_does_not_matter)
{
	const struct kvw_group_share one[] = {{STABLE, 3}, {CANARY, 1}, {THIRD, 2}};
	const struct kvw_group_share other[] = {{THIRD, 2}, {STABLE, 3}, {CANARY, 1}};

	for (uint64_t key = 0; key < 1000; key++)
		ck_assert_uint_eq(one[chosen(one, 3, key)].hash, other[chosen(other, 3, key)].hash);
}
END_TEST

START_TEST(test_weight_0_gets_nothing_and_the_next_is_as_without_the_first)
{
	const struct kvw_group_share all[] = {{STABLE, 3}, {CANARY, 1}, {THIRD, 2}, {7, 0}};

	for (uint64_t key = 0; key < 1000; key++) {
		struct kvw_group_share rest[4];
		uint8_t order[4];

		ck_assert_uint_eq(kvw_group_order(all, 4, key, order), 3);
		memcpy(rest, all, sizeof(rest));
		rest[order[0]].weight = 0;
		ck_assert_uint_eq(chosen(rest, 4, key), order[1]);
	}
}
END_TEST

START_TEST(test_none)
{
	const struct kvw_group_share shares[] = {{STABLE, 0}, {CANARY, NAN}};
	uint8_t order[2];

	ck_assert_uint_eq(kvw_group_order(shares, 2, 1, order), 0);
	ck_assert_uint_eq(kvw_group_order(shares, 0, 1, order), 0);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("group_choice");

	tcase_add_test(tcase, test_shares_are_those_of_the_weights);
	tcase_add_test(tcase, test_a_changed_weight_moves_only_the_difference);
	tcase_add_test(tcase, test_order_of_the_list_does_not_matter);
	tcase_add_test(tcase, test_weight_0_gets_nothing_and_the_next_is_as_without_the_first);
	tcase_add_test(tcase, test_none);
	return run_tcase("group_choice", tcase);
}
