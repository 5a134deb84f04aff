/*
 * accept_test.c - weights of media types in Accept fields.
 */
#include <check.h>

#include "http/accept.h"
#include "tests/unit/suite.h"

static unsigned weight(const char *value)
{
	return kvw_accept_weight(kvw_slice_of(value), KVW_SLICE("text/plain"), KVW_SLICE("0.0.4"));
}

START_TEST(weights)
{
	ck_assert_uint_eq(weight("text/plain"), 1000);
	ck_assert_uint_eq(weight("TEXT/Plain ; q=0.5"), 500);
	ck_assert_uint_eq(weight("text/plain;version=0.0.4;q=0.2"), 200);
	ck_assert_uint_eq(weight("text/plain;version=1.0.0"), 0);
	ck_assert_uint_eq(weight("text/plain;q=0"), 0);
	ck_assert_uint_eq(weight("text/plain;q=0.123"), 123);
	ck_assert_uint_eq(weight("text/plain;q=1.000"), 1000);
	ck_assert_uint_eq(weight("text/plain;q=1.001"), 0);
	ck_assert_uint_eq(weight("text/plain;q=2"), 0);
	ck_assert_uint_eq(weight("text/plain;q="), 0);
	ck_assert_uint_eq(weight("text/plain;q=0.1234"), 0);
	ck_assert_uint_eq(weight("text/html, text/plain;q=0.3,text/plain;q=0.4"), 400);
	ck_assert_uint_eq(weight("text/plainer, */*"), 0);
	ck_assert_uint_eq(weight(""), 0);
	ck_assert_uint_eq(weight(",;,=;;q"), 0);
}
END_TEST

START_TEST(what_prometheus_sends)
{
	static const char sent[] =
		"application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
		"application/openmetrics-text;version=0.0.1;q=0.5,"
		"text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/"
		"plain;version=0.0.4;q=0.3,"
		"*/*;q=0.2";

	ck_assert_uint_eq(weight(sent), 300);
	ck_assert_uint_eq(kvw_accept_weight(KVW_SLICE(sent),
				  KVW_SLICE("application/openmetrics-text"), KVW_SLICE("1.0.0")),
		600);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("accept");

	tcase_add_test(tcase, weights);
	tcase_add_test(tcase, what_prometheus_sends);
	return run_tcase("http-accept", tcase);
}
