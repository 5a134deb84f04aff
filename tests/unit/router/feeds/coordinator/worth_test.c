/*
 * worth_test.c - when a server is left alone by prefetches, and for how long.
 */
#include <check.h>

#include "feeds/coordinator/worth.h"
#include "tests/unit/suite.h"

START_TEST(a_server_rests_once_most_were_in_vain_and_then_begins_anew)
{
	struct kvw_worth worth = {0};
	int64_t now_ns = 5;

	for (uint32_t i = 1; i < KVW_WORTH_ENOUGH; i++)
		ck_assert(!kvw_worth_note(&worth, true, now_ns));
	ck_assert(!kvw_worth_rests(&worth, now_ns));
	ck_assert(kvw_worth_note(&worth, true, now_ns));
	ck_assert(kvw_worth_rests(&worth, now_ns + KVW_WORTH_REST_NS - 1));
	now_ns += KVW_WORTH_REST_NS;
	ck_assert(!kvw_worth_rests(&worth, now_ns));
	for (uint32_t i = 1; i < KVW_WORTH_ENOUGH; i++)
		ck_assert(!kvw_worth_note(&worth, true, now_ns));
	ck_assert(kvw_worth_note(&worth, true, now_ns));
}
END_TEST

START_TEST(half_in_vain_is_enough_of_use_and_old_ones_no_longer_count)
{
	struct kvw_worth worth = {0};

	for (uint32_t i = 0; i < 10 * KVW_WORTH_WINDOW; i++)
		ck_assert(!kvw_worth_note(&worth, i % 2 == 1, 1));
	for (uint32_t i = 0; i < KVW_WORTH_WINDOW; i++)
		ck_assert(!kvw_worth_note(&worth, false, 1));
	for (uint32_t i = 0; i < KVW_WORTH_WINDOW / 2; i++)
		ck_assert(!kvw_worth_note(&worth, true, 1));
	ck_assert(kvw_worth_note(&worth, true, 1));
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("worth");

	tcase_add_test(tc, a_server_rests_once_most_were_in_vain_and_then_begins_anew);
	tcase_add_test(tc, half_in_vain_is_enough_of_use_and_old_ones_no_longer_count);
	return run_tcase("coordinator-worth", tc);
}
