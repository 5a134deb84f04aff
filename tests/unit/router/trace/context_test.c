/*
 * context_test.c - the field traceparent, by the examples and rules of W3C Trace Context.
 */
#include <check.h>

#include "tests/unit/suite.h"
#include "trace/context.h"

#define TRACE "4bf92f3577b34da6a3ce929d0e0e4736"
#define SPAN  "00f067aa0ba902b7"

static bool reads(const char *value, struct kvw_trace_context *out)
{
	return kvw_traceparent_read(kvw_slice_of(value), out);
}

START_TEST(the_example_of_the_specification)
{
	struct kvw_trace_context context = {.span = 7};
	char written[KVW_TRACEPARENT_LEN];

	ck_assert(reads("00-" TRACE "-" SPAN "-01", &context));
	ck_assert_uint_eq(context.trace[0], UINT64_C(0x4bf92f3577b34da6));
	ck_assert_uint_eq(context.trace[1], UINT64_C(0xa3ce929d0e0e4736));
	ck_assert_uint_eq(context.parent, UINT64_C(0x00f067aa0ba902b7));
	ck_assert_uint_eq(context.flags, KVW_TRACE_SAMPLED);
	ck_assert_uint_eq(context.span, 7);
	kvw_traceparent_write(written, context.trace, context.parent, context.flags);
	ck_assert_mem_eq(written, "00-" TRACE "-" SPAN "-01", sizeof(written));
}
END_TEST

START_TEST(later_versions_are_read_as_far_as_they_are_known)
{
	struct kvw_trace_context context;

	ck_assert(reads("cc-" TRACE "-" SPAN "-01", &context));
	ck_assert(reads("01-" TRACE "-" SPAN "-01-what-comes-later", &context));
	ck_assert(!reads("01-" TRACE "-" SPAN "-01what", &context));
}
END_TEST

START_TEST(what_is_not_valid)
{
	static const char *const bad[] = {
		"",
		"00",
		"00-" TRACE "-" SPAN,
		"00-" TRACE "-" SPAN "-",
		"00-" TRACE "-" SPAN "-0",
		"00-" TRACE "-" SPAN "-0g",
		"00-" TRACE "-" SPAN "-01-",
		"00-" TRACE "-" SPAN "-01 ",
		" 00-" TRACE "-" SPAN "-01",
		"ff-" TRACE "-" SPAN "-01",
		"0g-" TRACE "-" SPAN "-01",
		"00_" TRACE "-" SPAN "-01",
		"00-" TRACE "_" SPAN "-01",
		"00-" TRACE "-" SPAN "_01",
		"00-4BF92F3577B34DA6A3CE929D0E0E4736-" SPAN "-01",
		"00-" TRACE "-00F067AA0BA902B7-01",
		"00-00000000000000000000000000000000-" SPAN "-01",
		"00-" TRACE "-0000000000000000-01",
	};
	struct kvw_trace_context context = {.flags = 9};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(!reads(bad[i], &context), "%s", bad[i]);
	ck_assert_uint_eq(context.flags, 9);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("context");

	tcase_add_test(tcase, the_example_of_the_specification);
	tcase_add_test(tcase, later_versions_are_read_as_far_as_they_are_known);
	tcase_add_test(tcase, what_is_not_valid);
	return run_tcase("trace-context", tcase);
}
