/*
 * queue_test.c - the order of what waits, and what the plan gives up.
 */
#include <check.h>
#include <stdlib.h>

#include "admission/queue.h"
#include "tests/unit/suite.h"

#define MOST 10

static struct kvw_queue queue;
static struct kvw_waiter waiters[1000];

static void setup(void)
{
	queue = (struct kvw_queue){0};
	srand(7);
}

static void teardown(void)
{
	kvw_queue_finish(&queue);
}

static struct kvw_waiter *add(size_t i, uint8_t class, int64_t start_ns, int64_t work_ns)
{
	waiters[i] = (struct kvw_waiter){
		.class = class, .start_ns = start_ns, .work_ns = work_ns, .value = 1};
	ck_assert_int_eq(kvw_queue_add(&queue, &waiters[i]), KVW_OK);
	return &waiters[i];
}

static void clear(void)
{
	while (queue.count > 0)
		kvw_queue_remove(&queue, queue.items[0]);
}

static void assert_order(void)
{
	for (size_t i = 0; i < queue.count; i++) {
		const struct kvw_waiter *w = queue.items[i];

		ck_assert_uint_eq(w->place, i);
		ck_assert(w->waits);
		if (i == 0)
			continue;
		ck_assert_uint_le(queue.items[i - 1]->class, w->class);
		if (queue.items[i - 1]->class == w->class)
			ck_assert_int_le(queue.items[i - 1]->start_ns, w->start_ns);
	}
}

START_TEST(order_holds_as_requests_come_move_and_go)
{
	for (size_t i = 0; i < 1000; i++)
		(void)add(i, (uint8_t)(rand() % KVW_CLASSES), rand() % 100, 1);
	assert_order();
	for (size_t i = 0; i < 3000; i++) {
		struct kvw_waiter *w = &waiters[rand() % 1000];

		if (!w->waits)
			continue;
		if (i % 3 == 0) {
			kvw_queue_remove(&queue, w);
			ck_assert(!w->waits);
			continue;
		}
		w->start_ns = rand() % 100;
		w->class = (uint8_t)(rand() % KVW_CLASSES);
		kvw_queue_moved(&queue, w);
	}
	assert_order();
}
END_TEST

START_TEST(equal_ones_keep_their_order)
{
	for (size_t i = 0; i < 100; i++)
		(void)add(i, 1, 5, 1);
	for (size_t i = 0; i < 100; i++)
		ck_assert_ptr_eq(queue.items[i], &waiters[i]);
}
END_TEST

START_TEST(a_second_removal_changes_nothing)
{
	struct kvw_waiter *first = add(0, 0, 1, 1);

	(void)add(1, 0, 2, 1);
	kvw_queue_remove(&queue, first);
	kvw_queue_remove(&queue, first);
	ck_assert_uint_eq(queue.count, 1);
	ck_assert_ptr_eq(queue.items[0], &waiters[1]);
}
END_TEST

/* Can all of these, a bit each, be sent in the queue's order, each in time? */
static bool feasible(unsigned set, int64_t ahead)
{
	int64_t work = ahead;

	for (size_t i = 0; i < queue.count; i++) {
		if ((set >> i & 1) == 0)
			continue;
		if (work > queue.items[i]->start_ns)
			return false;
		work += queue.items[i]->work_ns;
	}
	return true;
}

static int most_kept(int64_t ahead)
{
	int most = 0;

	for (unsigned set = 0; set < 1u << queue.count; set++)
		if (__builtin_popcount(set) > most && feasible(set, ahead))
			most = __builtin_popcount(set);
	return most;
}

static unsigned kept(void)
{
	unsigned set = 0;

	for (size_t i = 0; i < queue.count; i++)
		set |= queue.items[i]->given_up ? 0 : 1u << i;
	return set;
}

START_TEST(plan_keeps_as_many_as_can_be)
{
	for (int round = 0; round < 500; round++) {
		int64_t ahead = rand() % 10;

		for (size_t i = 0; i < MOST; i++)
			(void)add(i, 0, rand() % 40, 1 + rand() % 15);
		kvw_queue_plan(&queue, 0, 1, (double)ahead);
		ck_assert(feasible(kept(), ahead));
		ck_assert_int_eq(__builtin_popcount(kept()), most_kept(ahead));
		clear();
	}
}
END_TEST

START_TEST(plan_of_the_important_class_does_not_see_the_others)
{
	for (int round = 0; round < 200; round++) {
		unsigned alone;

		for (size_t i = 0; i < 6; i++)
			(void)add(i, 0, rand() % 40, 1 + rand() % 15);
		kvw_queue_plan(&queue, 0, 1, 0);
		alone = kept();
		for (size_t i = 6; i < MOST; i++)
			(void)add(i, 1, rand() % 40, 1 + rand() % 15);
		kvw_queue_plan(&queue, 0, 1, 0);
		ck_assert_uint_eq(kept() & 63, alone);
		ck_assert(feasible(kept(), 0));
		clear();
	}
}
END_TEST

START_TEST(plan_gives_up_what_is_worth_least_for_its_work)
{
	struct kvw_waiter *worthy = add(0, 0, 0, 10);
	struct kvw_waiter *other = add(1, 0, 5, 8);

	worthy->value = 3;
	kvw_queue_plan(&queue, 0, 1, 0);
	ck_assert(!worthy->given_up);
	ck_assert(other->given_up);
	kvw_queue_plan(&queue, 0, 2, 0); /* workers twice as fast */
	ck_assert(!other->given_up);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("queue");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, order_holds_as_requests_come_move_and_go);
	tcase_add_test(tcase, equal_ones_keep_their_order);
	tcase_add_test(tcase, a_second_removal_changes_nothing);
	tcase_add_test(tcase, plan_keeps_as_many_as_can_be);
	tcase_add_test(tcase, plan_of_the_important_class_does_not_see_the_others);
	tcase_add_test(tcase, plan_gives_up_what_is_worth_least_for_its_work);
	return run_tcase("admission queue", tcase);
}
