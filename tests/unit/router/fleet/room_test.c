/*
 * room_test.c - the prompt tokens in flight that fit a worker's KV memory, from what its metrics say.
 */
#include <math.h>

#include "fleet/room.h"
#include "tests/unit/suite.h"

static struct kvw_room room;
static struct kvw_room_page page;

static void setup(void)
{
	room = (struct kvw_room){0};
	/* Ten requests of 12,000 tokens each run, and none waits. */
	page = (struct kvw_room_page){
		.capacity_tokens = 200000, .usage = 0.6, .running = 10, .waiting = 0, .context = 120000};
}

START_TEST(without_a_size_nothing_is_known)
{
	page.capacity_tokens = 0;
	ck_assert(isinf(kvw_room_read(&room, &page)));
}
END_TEST

START_TEST(before_it_has_shown_anything_a_token_takes_a_token)
{
	page.usage = -1;
	ck_assert_double_eq(kvw_room_read(&room, &page), 200000);
	page.usage = 0.6;
	page.running = -1;
	ck_assert_double_eq(kvw_room_read(&room, &page), 200000);
	page.running = 10;
	page.context = 0; /* they are not ours */
	ck_assert_double_eq(kvw_room_read(&room, &page), 200000);
}
END_TEST

/* A system prompt that all of them share lies there once. */
START_TEST(shared_prefixes_leave_more_room)
{
	page.usage = 0.5;
	ck_assert_double_eq_tol(kvw_room_read(&room, &page), 240000, 1);
}
END_TEST

START_TEST(answers_that_grow_leave_less)
{
	page.context = 12000;
	ck_assert_double_eq_tol(kvw_room_read(&room, &page), 20000, 1);
}
END_TEST

/* Those that wait have no memory, preempted ones among them. */
START_TEST(requests_that_wait_in_the_engine_use_none)
{
	page.usage = 1;
	page.running = 16;
	page.waiting = 48;
	page.context = 64 * 12500;
	ck_assert_double_eq_tol(kvw_room_read(&room, &page), 200000, 1);
}
END_TEST

START_TEST(memory_of_others_is_not_ours)
{
	page.usage = 1;
	page.running = 20;
	page.waiting = 8;
	page.foreign_running = 10;
	page.foreign_waiting = 8;
	page.context = 100000;
	ck_assert_double_eq_tol(kvw_room_read(&room, &page), 100000, 1);
	page.foreign_running = 20; /* all of it, they say: some is left */
	ck_assert_double_gt(kvw_room_read(&room, &page), 0);
}
END_TEST

/* A stale page, or one of a quiet moment, changes little. */
START_TEST(one_page_moves_what_others_have_shown_by_a_quarter_at_most)
{
	double before = kvw_room_read(&room, &page);

	page.usage = 0.01;
	ck_assert_double_eq(kvw_room_read(&room, &page), before);
	page.usage = 0.9;
	ck_assert_double_gt(kvw_room_read(&room, &page), before / 1.5);
	page.usage = 1;
	page.context = 1; /* requests that have come since it was written */
	for (int i = 0; i < 100; i++)
		ck_assert_double_ge(kvw_room_read(&room, &page), 200000 / 64.0);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("room");

	tcase_add_checked_fixture(tcase, setup, NULL);
	tcase_add_test(tcase, without_a_size_nothing_is_known);
	tcase_add_test(tcase, before_it_has_shown_anything_a_token_takes_a_token);
	tcase_add_test(tcase, shared_prefixes_leave_more_room);
	tcase_add_test(tcase, answers_that_grow_leave_less);
	tcase_add_test(tcase, requests_that_wait_in_the_engine_use_none);
	tcase_add_test(tcase, memory_of_others_is_not_ours);
	tcase_add_test(tcase, one_page_moves_what_others_have_shown_by_a_quarter_at_most);
	return run_tcase("room", tcase);
}
