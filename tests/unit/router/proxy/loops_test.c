/*
 * loops_test.c - how many event loops there are without a setting.
 */
#include <check.h>
#include <sched.h>

#include "proxy/proxy.h"
#include "tests/unit/suite.h"

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
	TCase *tcase = tcase_create("loops");

	tcase_add_test(tcase, one_loop_for_each_core_we_may_use);
	return run_tcase("loops", tcase);
}
