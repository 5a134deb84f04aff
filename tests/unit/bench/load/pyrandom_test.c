/*
 * pyrandom_test.c - the numbers are Python's: every expectation here was printed by CPython
 * 3.11's random module.
 */
#include <check.h>
#include <stdlib.h>

#include "bench/load/pyrandom.h"
#include "tests/unit/suite.h"

static void check_all(const uint32_t *got, const uint32_t *expected, size_t count)
{
	for (size_t i = 0; i < count; i++)
		ck_assert_msg(got[i] == expected[i], "number %zu is %u, expected %u", i, got[i],
			expected[i]);
}

START_TEST(numbers_follow_one_another_as_in_python)
{
	static const uint32_t shuffled[] = {7, 3, 2, 8, 5, 6, 9, 4, 0, 1};
	uint32_t items[10];
	struct kvb_py_random random;

	for (uint32_t i = 0; i < 10; i++)
		items[i] = i;
	kvb_py_seed(&random, 42);
	kvb_py_shuffle(&random, items, 10);
	check_all(items, shuffled, 10);
	ck_assert_uint_eq(kvb_py_bits(&random, 5), 18);
	ck_assert_uint_eq(kvb_py_bits(&random, 64), UINT64_C(586287033698423193));
	ck_assert_double_eq_tol(kvb_py_unit(&random), 0.029797219438070344, 1e-17);
	ck_assert_uint_eq(kvb_py_randbelow(&random, UINT64_C(1) << 32), 939042955);
	ck_assert_uint_eq(kvb_py_randbelow(&random, 1000003), 529903);
}
END_TEST

START_TEST(long_and_negative_seeds)
{
	static const uint32_t below_six[] = {4, 2, 0, 3, 1, 1, 0, 0};
	struct kvb_py_random random;

	kvb_py_seed(&random, INT64_C(-7000000000000));
	ck_assert_uint_eq(kvb_py_bits(&random, 32), 2255927262);
	for (size_t i = 0; i < 8; i++)
		ck_assert_uint_eq(kvb_py_randbelow(&random, 6), below_six[i]);
	kvb_py_seed(&random, (INT64_C(1) << 40) + 5);
	for (size_t i = 0; i < 1298; i++) /* over two refills of the state */
		kvb_py_bits(&random, 32);
	ck_assert_uint_eq(kvb_py_bits(&random, 32), 1556764243);
	ck_assert_uint_eq(kvb_py_bits(&random, 32), 2589966109);
}
END_TEST

/* Python strikes drawn numbers out of small ranges and remembers them in large ones. */
START_TEST(samples_from_small_and_large_ranges)
{
	static const uint32_t all[] = {3, 8, 2, 7, 4, 9, 0, 6, 5, 1};
	static const uint32_t four[] = {2124, 4512, 1919, 1570};
	static const uint32_t seven[] = {3852, 4431, 4502, 3902, 3253, 1233, 1899};
	static const uint32_t choices[] = {81, 111, 66, 94, 85, 8};
	static const uint32_t edge_85[] = {75, 5, 38, 3, 34, 60};
	static const uint32_t edge_86[] = {76, 49, 54, 50, 73, 56};
	static const uint32_t edge_21[] = {4, 11, 3, 1, 20};
	static const uint32_t edge_22[] = {15, 6, 8, 21, 13};
	struct kvb_py_random random;
	uint32_t got[10];

	kvb_py_seed(&random, 3);
	kvb_py_sample(&random, 10, got, 10);
	check_all(got, all, 10);
	kvb_py_sample(&random, 5000, got, 4);
	check_all(got, four, 4);
	kvb_py_sample(&random, 5000, got, 7);
	check_all(got, seven, 7);
	for (size_t i = 0; i < 6; i++)
		ck_assert_uint_eq(kvb_py_choice(&random, 128), choices[i]);
	kvb_py_sample(&random, 85, got, 6);
	check_all(got, edge_85, 6);
	kvb_py_sample(&random, 86, got, 6);
	check_all(got, edge_86, 6);
	kvb_py_sample(&random, 21, got, 5);
	check_all(got, edge_21, 5);
	kvb_py_sample(&random, 22, got, 5);
	check_all(got, edge_22, 5);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("all");

	tcase_add_test(tests, numbers_follow_one_another_as_in_python);
	tcase_add_test(tests, long_and_negative_seeds);
	tcase_add_test(tests, samples_from_small_and_large_ranges);
	return run_tcase("load pyrandom", tests);
}
