/*
 * roundrobin_test.c - everybody in turn, whatever happens to the fleet meanwhile.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "strategy_fixture.h"
#include "tests/unit/suite.h"

static void setup(void)
{
	setup_strategy("roundrobin");
}

/* Id of the next worker. */
static uint32_t next(const struct kvw_candidates *set)
{
	struct kvw_route_request request = {0};
	struct kvw_decision out;

	EXPECT(strategy->ops->pick(strategy, &request, set, 0, &out) == KVW_OK);
	EXPECT(out.reason == KVW_REASON_TURN);
	return out.worker_id;
}

START_TEST(each_in_turn)
{
	fleet_init(&fleet, 5);
	for (unsigned i = 0; i < 50; i++)
		ck_assert_uint_eq(next(&fleet.set), i % 5);
}
END_TEST

START_TEST(unusable_are_passed_over)
{
	fleet_init(&fleet, 4);
	fleet.items[1].usable = false;
	ck_assert_uint_eq(next(&fleet.set), 0);
	ck_assert_uint_eq(next(&fleet.set), 2);
	ck_assert_uint_eq(next(&fleet.set), 3);
	ck_assert_uint_eq(next(&fleet.set), 0);
	fleet.items[1].usable = true;
	ck_assert_uint_eq(next(&fleet.set), 1);
}
END_TEST

/* The worker whose turn was last disappears; none is skipped or served twice. */
START_TEST(loss_of_the_last_served)
{
	struct kvw_candidates without_two;
	struct kvw_candidate items[4];

	fleet_init(&fleet, 5);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_uint_eq(next(&fleet.set), i);
	items[0] = fleet.items[0];
	items[1] = fleet.items[1];
	items[2] = fleet.items[3];
	items[3] = fleet.items[4];
	without_two = (struct kvw_candidates){items, 4, NULL, 0};
	ck_assert_uint_eq(next(&without_two), 3);
	ck_assert_uint_eq(next(&without_two), 4);
	ck_assert_uint_eq(next(&without_two), 0);
	ck_assert_uint_eq(next(&fleet.set), 1);
	ck_assert_uint_eq(next(&fleet.set), 2);
}
END_TEST

/* Under random loss and return, between two turns of a worker that stays no other has two. */
START_TEST(fair_under_membership_changes)
{
	uint64_t dice = 8;
	unsigned turns[10] = {0}; /* since worker 0 was served */

	fleet_init(&fleet, 10);
	for (unsigned i = 0; i < 20000; i++) {
		uint32_t id = 0;

		if (test_random(&dice) % 3 == 0) {
			unsigned w = 1 + (unsigned)(test_random(&dice) % 9);

			fleet.items[w].usable = !fleet.items[w].usable;
		}
		id = next(&fleet.set);
		turns[id]++;
		EXPECT(turns[id] <= 1 || id == 0);
		if (id == 0)
			for (unsigned w = 0; w < 10; w++)
				turns[w] = 0;
	}
}
END_TEST

#define LOOPS 4
#define PICKS 30000

struct loop {
	struct kvw_candidates set;
	_Atomic uint64_t *served;
};

static void *run_loop(void *arg)
{
	struct loop *loop = arg;

	for (unsigned i = 0; i < PICKS; i++)
		atomic_fetch_add(&loop->served[next(&loop->set)], 1);
	return NULL;
}

START_TEST(loops_never_give_a_turn_twice)
{
	_Atomic uint64_t served[8] = {0};
	pthread_t threads[LOOPS];
	struct loop loop;

	fleet_init(&fleet, 8);
	loop = (struct loop){fleet.set, served};
	for (unsigned i = 0; i < LOOPS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run_loop, &loop), 0);
	for (unsigned i = 0; i < LOOPS; i++)
		pthread_join(threads[i], NULL);
	for (unsigned w = 0; w < 8; w++)
		ck_assert_uint_eq(served[w], LOOPS * PICKS / 8);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("roundrobin");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, each_in_turn);
	tcase_add_test(tcase, unusable_are_passed_over);
	tcase_add_test(tcase, loss_of_the_last_served);
	tcase_add_test(tcase, fair_under_membership_changes);
	tcase_add_test(tcase, loops_never_give_a_turn_twice);
	tcase_set_timeout(tcase, 60);
	return run_tcase("roundrobin", tcase);
}
