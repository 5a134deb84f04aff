/*
 * prediction_check_test.c - when most exact predictions of a worker are wrong, that is said, once.
 */
#include <check.h>
#include <stdlib.h>

#include "feeds/prediction_check.h"
#include "tests/unit/suite.h"

#define BLOCK 16

static struct kvw_prediction_check prediction_check;

static void setup(void)
{
	prediction_check = (struct kvw_prediction_check){0};
}

static unsigned note(uint32_t predicted, uint32_t cached, int count, bool *too_many)
{
	unsigned told = 0;

	for (int i = 0; i < count; i++)
		told += kvw_prediction_check_note(&prediction_check, predicted, cached, BLOCK, too_many);
	return told;
}

START_TEST(a_block_more_or_less_is_right)
{
	ck_assert(kvw_prediction_check_right(0, 0, BLOCK));
	ck_assert(kvw_prediction_check_right(160, 176, BLOCK));
	ck_assert(kvw_prediction_check_right(176, 160, BLOCK));
	ck_assert(!kvw_prediction_check_right(160, 177, BLOCK));
	ck_assert(!kvw_prediction_check_right(UINT32_MAX, 0, BLOCK));
}
END_TEST

START_TEST(nothing_is_said_too_early_or_of_a_few)
{
	bool too_many;

	ck_assert_uint_eq(note(1000, 0, KVW_PREDICTION_CHECK_WINDOW - 1, &too_many), 0);
	setup();
	for (int i = 0; i < 200; i++) {
		ck_assert_uint_eq(note(1000, 0, 1, &too_many), 0);
		ck_assert_uint_eq(note(1000, 1000, 1, &too_many), 0);
	}
}
END_TEST

START_TEST(most_wrong_is_said_once_and_which_way)
{
	bool too_many = false;

	ck_assert_uint_eq(note(1000, 0, KVW_PREDICTION_CHECK_WINDOW, &too_many), 1);
	ck_assert(too_many);
	ck_assert_uint_eq(note(1000, 0, 500, &too_many), 0);
	setup();
	ck_assert_uint_eq(note(0, 1000, KVW_PREDICTION_CHECK_WINDOW, &too_many), 1);
	ck_assert(!too_many);
}
END_TEST

START_TEST(what_was_right_for_long_and_breaks_again_is_said_again)
{
	bool too_many;

	ck_assert_uint_eq(note(1000, 0, 100, &too_many), 1);
	ck_assert_uint_eq(note(1000, 1000, 100, &too_many), 0);
	ck_assert_uint_eq(note(1000, 0, 100, &too_many), 1);
	/* Half-way back is not back. */
	ck_assert_uint_eq(note(1000, 1000, KVW_PREDICTION_CHECK_WINDOW / 2, &too_many), 0);
	ck_assert_uint_eq(note(1000, 0, 100, &too_many), 0);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("prediction_check");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, a_block_more_or_less_is_right);
	tcase_add_test(tcase, nothing_is_said_too_early_or_of_a_few);
	tcase_add_test(tcase, most_wrong_is_said_once_and_which_way);
	tcase_add_test(tcase, what_was_right_for_long_and_breaks_again_is_said_again);
	return run_tcase("prediction_check", tcase);
}
