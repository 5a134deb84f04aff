/*
 * suite.h - the end of main() of every unit test program: run, free, report.
 *
 * CK_VERBOSITY and the other CK_* variables of Check apply.
 */
#ifndef TESTS_UNIT_SUITE_H
#define TESTS_UNIT_SUITE_H

#include <check.h>

/* Runs the suite and frees it. Returns the exit status of the program: 0 if every test passed. */
static inline int run_suite(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	int failed;

	srunner_run_all(runner, CK_ENV);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}

/* The same for a suite of this name with this one test case. */
static inline int run_tcase(const char *name, TCase *tcase)
{
	Suite *suite = suite_create(name);

	suite_add_tcase(suite, tcase);
	return run_suite(suite);
}

#endif
