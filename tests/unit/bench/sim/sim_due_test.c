/* sim_due_test.c - requests that say when they are due. */
#include <check.h>
#include <string.h>

#include "bench/sim/sim_due.h"
#include "tests/unit/suite.h"

START_TEST(a_due_time_is_two_whole_numbers)
{
	static const char *const wrong[] = {"", " ", "5", "5 ", " 5 6", "5  6", "5 6 ", "5 6 7",
		"-5 6", "5 -6", "5.0 6", "a b", "5,6", "1234567890123456789 1"};
	struct kvb_due due = {1, 2};

	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		ck_assert_msg(!kvb_due_parse(wrong[i], strlen(wrong[i]), &due), "'%s'", wrong[i]);
		ck_assert_int_eq(due.due_ns, 1);
	}
	ck_assert(kvb_due_parse("123456789012345678 25000000tail", 27, &due));
	ck_assert_int_eq(due.due_ns, 123456789012345678);
	ck_assert_int_eq(due.lead_ns, 25000000);
	ck_assert(kvb_due_parse("0 0", 3, &due));
	ck_assert_int_eq(due.due_ns, 0);
}
END_TEST

/* Sent at 700, due at 1000; the clock runs from 500 at 10 times the speed. */
START_TEST(the_way_is_not_multiplied)
{
	static const struct kvb_sim_clock fast = {.origin_ns = 500, .speed = 10};
	static const struct kvb_due due = {.due_ns = 1000, .lead_ns = 300};

	ck_assert_int_eq(kvb_due_arrival_ns(&due, &fast, 700), 5000);
	ck_assert_int_eq(kvb_due_arrival_ns(&due, &fast, 740), 5040);
	ck_assert_int_eq(kvb_due_arrival_ns(&due, &fast, 2700), 7000);
	ck_assert_int_eq(kvb_due_arrival_ns(&due, &fast, 600), 5000); /* clocks disagree */
}
END_TEST

START_TEST(at_the_clocks_speed_a_request_arrives_as_late_as_it_was_sent_early)
{
	static const struct kvb_sim_clock real = {.origin_ns = 500, .speed = 1};
	static const struct kvb_due due = {.due_ns = 1000, .lead_ns = 300};

	ck_assert_int_eq(kvb_due_arrival_ns(&due, &real, 740), 740 - 500 + 300);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("due");

	tcase_add_test(tests, a_due_time_is_two_whole_numbers);
	tcase_add_test(tests, the_way_is_not_multiplied);
	tcase_add_test(tests, at_the_clocks_speed_a_request_arrives_as_late_as_it_was_sent_early);
	return run_tcase("sim_due", tests);
}
