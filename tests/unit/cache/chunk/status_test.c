/*
 * status_test.c - every status has words of its own, and every other value has some.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "kvtier/kvtier.h"
#include "tests/unit/suite.h"

START_TEST(test_texts_differ)
{
	for (int a = KVT_OK; a <= KVT_ENOTSUP; a++) {
		ck_assert_ptr_nonnull(kvt_status_text((enum kvt_status)a));
		ck_assert_str_ne(kvt_status_text((enum kvt_status)a), "");
		for (int b = KVT_OK; b < a; b++)
			ck_assert_str_ne(kvt_status_text((enum kvt_status)a),
				kvt_status_text((enum kvt_status)b));
	}
}
END_TEST

START_TEST(test_foreign_values)
{
	ck_assert_str_eq(kvt_status_text((enum kvt_status)(KVT_ENOTSUP + 1)), "unknown status");
	ck_assert_str_eq(kvt_status_text((enum kvt_status)0x7fffffff), "unknown status");
}
END_TEST

START_TEST(test_version)
{
	int dots = 0;

	for (const char *c = kvt_version(); *c != '\0'; c++) {
		ck_assert(*c == '.' || (*c >= '0' && *c <= '9'));
		dots += *c == '.';
	}
	ck_assert_int_eq(dots, 2);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_add_test(tcase, test_texts_differ);
	tcase_add_test(tcase, test_foreign_values);
	tcase_add_test(tcase, test_version);
	return run_tcase("status", tcase);
}
