/*
 * loops_test.c - how many event loops there are without a setting.
 */
#include <check.h>
#include <sched.h>

#include "proxy/proxy.h"

START_TEST(one_loop_for_each_core_we_may_use)
{
	cpu_set_t may, one;
	size_t all, first = 0;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(may), &may), 0);
	all = kvw_proxy_default_loops();
	ck_assert_uint_ge(all, 1);
	ck_assert_uint_le(all, (size_t)CPU_COUNT(&may)); /* a quota may leave fewer */
	while (!CPU_ISSET(first, &may))
		first++;
	CPU_ZERO(&one);
	CPU_SET(first, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	ck_assert_uint_eq(kvw_proxy_default_loops(), 1);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(may), &may), 0);
	ck_assert_uint_eq(kvw_proxy_default_loops(), all);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("loops");
	TCase *tcase = tcase_create("loops");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(tcase, one_loop_for_each_core_we_may_use);
	suite_add_tcase(suite, tcase);
	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
