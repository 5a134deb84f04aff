/*
 * queue_test.c - the order of what waits, and what the plan gives up; both against simple models.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

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

/* Adds a waiter whose latest moment of sending is as late as its arrival. */
static struct kvw_waiter *add(size_t i, uint8_t class, int64_t start_ns, int64_t work_ns)
{
	waiters[i] = (struct kvw_waiter){.class = class,
		.came_ns = start_ns,
		.start_ns = start_ns,
		.work_ns = work_ns,
		.value = 1};
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

		ck_assert(w->waits);
		if (i == 0)
			continue;
		ck_assert_uint_le(queue.items[i - 1]->class, w->class);
		if (queue.items[i - 1]->class != w->class)
			continue;
		ck_assert_int_le(queue.items[i - 1]->came_ns, w->came_ns);
	}
}

START_TEST(order_holds_as_requests_come_move_and_go)
{
	for (size_t i = 0; i < 1000; i++)
		(void)add(i, (uint8_t)(rand() % KVW_CLASSES), rand() % 100, 1);
	assert_order();
	for (size_t i = 0; i < 1000; i++) {
		kvw_queue_remove(&queue, &waiters[i]);
		waiters[i].came_ns = rand() % 100;
		ck_assert_int_eq(kvw_queue_add(&queue, &waiters[i]), KVW_OK);
	}
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
		if (w->class > 0)
			kvw_queue_promote(&queue, w);
	}
	assert_order();
}
END_TEST

/* The long prompt has more time and came first. */
START_TEST(what_came_first_goes_first)
{
	struct kvw_waiter *prompts = waiters;

	memset(waiters, 0, sizeof(waiters));
	for (size_t i = 0; i < 3; i++) {
		prompts[i] = (struct kvw_waiter){.class = 1,
			.came_ns = (int64_t)i,
			.start_ns = 100 - (int64_t)i,
			.work_ns = 1,
			.value = 1};
		ck_assert_int_eq(kvw_queue_add(&queue, &prompts[i]), KVW_OK);
	}
	for (size_t i = 0; i < 3; i++)
		ck_assert_ptr_eq(queue.items[i], &prompts[i]);
	kvw_queue_promote(&queue, &prompts[2]);
	ck_assert_ptr_eq(queue.items[0], &prompts[2]);
	ck_assert_ptr_eq(queue.items[1], &prompts[0]);
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

/* A queue in which neighbours change places one by one. */
static struct kvw_waiter *model[1000];
static size_t model_count;

static void model_sink(size_t place)
{
	struct kvw_waiter *w = model[place];

	for (; place > 0 && kvw_waiter_before(w, model[place - 1]); place--)
		model[place] = model[place - 1];
	for (; place + 1 < model_count && kvw_waiter_before(model[place + 1], w); place++)
		model[place] = model[place + 1];
	model[place] = w;
}

static size_t model_place(const struct kvw_waiter *w)
{
	size_t place = 0;

	while (model[place] != w)
		place++;
	return place;
}

static void model_remove(const struct kvw_waiter *w)
{
	size_t place = model_place(w);

	model_count--;
	memmove(model + place, model + place + 1, (model_count - place) * sizeof(model[0]));
}

/* With few different moments many are equal; with a rising one most come at the end and leave from the front. */
START_TEST(does_what_a_simple_queue_does)
{
	const int moments = _i % 2 == 0 ? 5 : 100000;

	srand((unsigned)_i + 1);
	model_count = 0;
	memset(waiters, 0, sizeof(waiters));
	for (int step = 0; step < 20000; step++) {
		int dice = rand() % 10;
		struct kvw_waiter *w = &waiters[rand() % (step < 10000 ? 1000 : 50)];
		uint8_t class = (uint8_t)(rand() % 3);
		int64_t came_ns = rand() % moments + (_i >= 2 ? step : 0);

		if (dice == 0 && queue.count > 0)
			w = queue.items[rand() % ((queue.count + 19) / 20)];
		if (!w->waits) {
			w->class = class;
			w->came_ns = came_ns;
			ck_assert_int_eq(kvw_queue_add(&queue, w), KVW_OK);
			model[model_count] = w;
			model_sink(model_count++);
		} else if (dice < 4) {
			kvw_queue_remove(&queue, w);
			model_remove(w);
		} else if (w->class > 0) {
			kvw_queue_promote(&queue, w);
			model_sink(model_place(w));
		}
		ck_assert_uint_eq(queue.count, model_count);
		ck_assert_int_eq(memcmp(queue.items, model, model_count * sizeof(model[0])), 0);
	}
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

/* The rule as it is written: the dearest of the least important class is looked for whenever one would be late. */
static void model_plan(bool *given_up, double ahead)
{
	double work = ahead;

	for (size_t i = 0; i < queue.count; i++) {
		const struct kvw_waiter *w = queue.items[i];

		given_up[i] = false;
		work += (double)w->work_ns;
		if (w->late != KVW_LATE_NEVER && w->start_ns < 0)
			continue;
		while (!given_up[i] && work - (double)w->work_ns > (double)w->start_ns) {
			size_t dearest = i;

			for (size_t k = 0; k < i; k++) {
				const struct kvw_waiter *a = queue.items[k];
				const struct kvw_waiter *b = queue.items[dearest];

				if (given_up[k] || (a->late != KVW_LATE_NEVER && a->start_ns < 0))
					continue;
				if (a->class != b->class ? a->class > b->class : kvw_waiter_price(a) > kvw_waiter_price(b))
					dearest = k;
			}
			given_up[dearest] = true;
			work -= (double)queue.items[dearest]->work_ns;
		}
	}
}

START_TEST(plan_follows_the_rule)
{
	bool given_up[200];

	for (int round = 0; round < 200; round++) {
		size_t count = 1 + (size_t)(rand() % 200);
		double ahead = rand() % 1000;
		size_t sum = 0;

		for (size_t i = 0; i < count; i++) {
			struct kvw_waiter *w = add(i, (uint8_t)(rand() % 3), rand() % 100000 - 1000,
				1 + (int64_t)i + 200 * (rand() % (1 + round % 10)));

			w->late = (enum kvw_late)(rand() % 3);
			w->value = rand() % 2 ? 1 : 1.7310585; /* no two have one price */
		}
		model_plan(given_up, ahead);
		kvw_queue_plan(&queue, 0, 1, ahead);
		for (size_t i = 0; i < count; i++) {
			ck_assert_int_eq(queue.items[i]->given_up, given_up[i]);
			sum += given_up[i];
		}
		ck_assert_uint_eq(queue.given_up, sum);
		clear();
		ck_assert_uint_eq(queue.given_up, 0);
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
	tcase_add_test(tcase, what_came_first_goes_first);
	tcase_add_loop_test(tcase, does_what_a_simple_queue_does, 0, 4);
	tcase_add_test(tcase, a_second_removal_changes_nothing);
	tcase_add_test(tcase, plan_keeps_as_many_as_can_be);
	tcase_add_test(tcase, plan_of_the_important_class_does_not_see_the_others);
	tcase_add_test(tcase, plan_follows_the_rule);
	tcase_add_test(tcase, plan_gives_up_what_is_worth_least_for_its_work);
	return run_tcase("admission queue", tcase);
}
