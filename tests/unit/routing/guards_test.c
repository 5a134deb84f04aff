/*
 * guards_test.c - which workers prefixaware passes over, why, and what it says of it.
 */
#include <stdlib.h>
#include <string.h>

#include "routing/guards.h"
#include "support.h"
#include "tests/unit/suite.h"

#define WORKERS 4
#define LEASES  200

static struct fleet fleet;
static struct kvw_strategy *strategy;
static struct kvw_lease leases[LEASES];
static size_t lease_count;

static void setup(void)
{
	struct kvw_strategy_options options = test_options();

	options.inflight_bound = 2;
	options.inflight_gap = 4;
	memset(leases, 0, sizeof(leases));
	lease_count = 0;
	fleet_init(&fleet, WORKERS);
	ck_assert_int_eq(kvw_strategy_find("prefixaware")->create(&options, &strategy), KVW_OK);
}

static void teardown(void)
{
	for (size_t i = 0; i < lease_count; i++)
		kvw_lease_release(&leases[i], 0);
	strategy->ops->destroy(strategy);
	fleet_finish(&fleet);
}

/* Requests in flight that cost no prefill. */
static void burden(size_t worker, unsigned count)
{
	while (count-- > 0)
		kvw_lease_take(&leases[lease_count++], fleet.items[worker].load, 0, 0);
}

static void make(struct prompt *p, uint64_t symbol)
{
	prompt_start(p);
	for (unsigned i = 0; i < 50; i++)
		prompt_add(p, symbol);
}

static struct kvw_decision pick(struct prompt *p)
{
	struct kvw_route_request request = request_of(p);
	struct kvw_decision out = {0};

	EXPECT(strategy->ops->pick(strategy, &request, &fleet.set, 0, &out) == KVW_OK);
	return out;
}

static enum kvw_verdict verdict(struct prompt *p, size_t worker)
{
	struct kvw_route_request request = request_of(p);
	struct kvw_cost costs[WORKERS];
	struct kvw_decision out;

	EXPECT(strategy->ops->explain(strategy, &request, &fleet.set, 0, costs, &out) == KVW_OK);
	return costs[worker].verdict;
}

/* The home of a prompt, where it is nearly free. */
static size_t make_home(struct prompt *p)
{
	size_t home;

	make(p, 1);
	home = pick(p).pos;
	ck_assert_uint_eq(pick(p).pos, home);
	return home;
}

START_TEST(too_many_in_flight_move_the_choice)
{
	struct kvw_decision d;
	struct prompt p;
	size_t home = make_home(&p);

	burden(home, 4);
	d = pick(&p); /* 4 of a mean of 1: within 2 * 1 + 4 */
	ck_assert_uint_eq(d.pos, home);
	ck_assert_int_eq(d.reason, KVW_REASON_PREFIX);
	ck_assert_uint_eq(d.inflight, 4);
	burden(home, 5);
	ck_assert_int_eq(verdict(&p, home), KVW_VERDICT_BOUND);
	d = pick(&p); /* 9 of a mean of 2.25: beyond 8.5 */
	ck_assert_uint_ne(d.pos, home);
	ck_assert_int_eq(d.reason, KVW_REASON_BOUND);
}
END_TEST

/* A worker that answers nothing keeps what it was sent; it is not sent more and more. */
START_TEST(a_worker_that_swallows_requests_is_bounded)
{
	struct prompt p;
	size_t home = make_home(&p);
	unsigned sent = 0;

	for (unsigned i = 0; i < LEASES; i++) {
		struct kvw_decision d = pick(&p);

		if (d.pos != home)
			continue;
		kvw_lease_take(&leases[lease_count++], fleet.items[home].load, d.prefill_ns, 0);
		sent++;
	}
	/* n > 2 n / 4 + 4 from the ninth on */
	ck_assert_uint_le(sent, 9);
}
END_TEST

/* A prompt is worth a wait for KV memory as long as computing it elsewhere takes. */
START_TEST(kv_memory_is_a_price_and_bars_nothing)
{
	struct kvw_cost costs[WORKERS];
	struct kvw_route_request request;
	struct kvw_lease kept = {0};
	struct kvw_decision d;
	struct prompt p;
	size_t home = make_home(&p);
	struct kvw_load *load = fleet.items[home].load;

	request = request_of(&p);
	kvw_lease_take(&kept, load, 0, 0);
	kvw_lease_hold(&kept, 100000);
	kvw_lease_first_token(&kept, 0);
	kvw_lease_release(&kept, 200000000);
	kvw_lease_take(&leases[lease_count++], load, 0, 0);
	kvw_lease_hold(&leases[0], 100000);
	kvw_load_set_room(load, 100000);
	EXPECT(strategy->ops->explain(strategy, &request, &fleet.set, 0, costs, &d) == KVW_OK);
	ck_assert_double_gt(costs[home].room_ns, 0);
	ck_assert_double_eq_tol(costs[home].queue_ns, costs[home].room_ns, 1);
	ck_assert_int_eq(d.queue_ns, (int64_t)costs[home].room_ns);
	ck_assert_uint_eq(d.pos, home); /* some milliseconds */
	ck_assert_uint_eq(pick(&p).pos, home);
	kvw_load_set_room(load, 10000); /* so large a part of it waits that ten times as much has to end */
	EXPECT(strategy->ops->explain(strategy, &request, &fleet.set, 0, costs, &d) == KVW_OK);
	ck_assert_double_gt(costs[home].room_ns, 1.8e9);
	ck_assert_uint_ne(d.pos, home);
	ck_assert_int_eq(costs[home].verdict, KVW_VERDICT_COSTS_MORE);
	for (size_t w = 0; w < WORKERS; w++)
		fleet.items[w].usable = w == home;
	ck_assert_uint_eq(pick(&p).pos, home); /* it is barred from nothing */
}
END_TEST

/* As its share grows a worker may have more of the mean. */
START_TEST(slow_start_limits_to_a_share_of_the_mean)
{
	struct prompt p;
	size_t home = make_home(&p);

	for (size_t w = 0; w < WORKERS; w++)
		burden(w, w == home ? 4 : 12); /* mean 10 */
	fleet.items[home].share = 0.5f;
	ck_assert_uint_eq(pick(&p).pos, home);
	fleet.items[home].share = 0.3f;
	ck_assert_int_eq(verdict(&p, home), KVW_VERDICT_SLOW_START);
	ck_assert_int_eq(pick(&p).reason, KVW_REASON_SLOW_START);
	ck_assert_uint_ne(pick(&p).pos, home);
}
END_TEST

/* At rest even the newest worker serves. */
START_TEST(slow_start_does_not_bar_an_idle_worker)
{
	struct prompt p;
	size_t home = make_home(&p);

	fleet.items[home].share = 0;
	ck_assert_uint_eq(pick(&p).pos, home);
	burden(home, 1);
	ck_assert_uint_ne(pick(&p).pos, home);
}
END_TEST

START_TEST(guards_that_bar_all_are_ignored)
{
	struct prompt p;
	size_t home = make_home(&p);
	struct kvw_decision d;

	for (size_t w = 0; w < WORKERS; w++) {
		burden(w, 4);
		fleet.items[w].share = 0;
	}
	d = pick(&p);
	ck_assert_uint_eq(d.pos, home);
	ck_assert_int_eq(d.reason, KVW_REASON_PREFIX);
	for (size_t w = 0; w < WORKERS; w++)
		ck_assert_int_ne(verdict(&p, w), KVW_VERDICT_SLOW_START);
	fleet.items[home].usable = false; /* nor does one that is out help */
	fleet.items[home].share = 1;
	d = pick(&p);
	ck_assert_uint_ne(d.pos, home);
	ck_assert_int_eq(d.reason, KVW_REASON_LOAD);
}
END_TEST

/* A guard names the reason only where it decided. */
START_TEST(guards_elsewhere_do_not_count)
{
	struct prompt p;
	size_t home = make_home(&p);
	struct kvw_decision d;

	for (size_t w = 0; w < WORKERS; w++) {
		burden(w, 4);
		fleet.items[w].share = w == home ? 1 : 0;
	}
	d = pick(&p);
	ck_assert_uint_eq(d.pos, home);
	ck_assert_int_eq(d.reason, KVW_REASON_PREFIX);
	for (size_t w = 0; w < WORKERS; w++)
		if (w != home)
			ck_assert_int_eq(verdict(&p, w), KVW_VERDICT_COSTS_MORE);
}
END_TEST

START_TEST(the_only_usable_worker_is_never_barred)
{
	struct prompt p;
	struct kvw_decision d;

	make(&p, 1);
	for (size_t w = 1; w < WORKERS; w++)
		fleet.items[w].usable = false;
	fleet.items[0].share = 0;
	burden(0, 100);
	d = pick(&p);
	ck_assert_uint_eq(d.pos, 0);
	ck_assert_int_eq(d.reason, KVW_REASON_ONLY);
}
END_TEST

START_TEST(prompts_that_are_not_understood_are_guarded_too)
{
	struct kvw_route_request request = {0};
	unsigned passed_over = 0;

	for (size_t w = 0; w < WORKERS; w++)
		burden(w, 4);
	fleet.items[2].share = 0;
	for (unsigned i = 0; i < 100; i++) {
		struct kvw_decision d = {0};

		EXPECT(strategy->ops->pick(strategy, &request, &fleet.set, 0, &d) == KVW_OK);
		ck_assert_uint_ne(d.pos, 2);
		passed_over += d.reason == KVW_REASON_SLOW_START;
	}
	ck_assert_uint_gt(passed_over, 5);
	ck_assert_uint_lt(passed_over, 60);
}
END_TEST

/* Random fleets: the choice is barred only if all are, and a guard's reason means that the lowest
 * cost of all was barred by it. */
START_TEST(choices_respect_guards)
{
	struct kvw_guards guards = {2, 4};
	uint64_t dice = 9;

	for (unsigned round = 0; round < 3000; round++) {
		double mean = 0;
		unsigned usable = 0;
		unsigned open = 0;
		struct kvw_decision d;
		struct prompt p;

		make(&p, test_random(&dice) % 20);
		for (size_t w = 0; w < WORKERS; w++) {
			fleet.items[w].share = test_random(&dice) % 4 == 0 ? 0.4f : 1;
			fleet.items[w].usable = w == 0 || test_random(&dice) % 5 != 0;
		}
		if (test_random(&dice) % 2 == 0 && lease_count < LEASES)
			burden(test_random(&dice) % WORKERS, 1);
		for (size_t w = 0; w < WORKERS; w++)
			if (fleet.items[w].usable) {
				mean += kvw_load_inflight(fleet.items[w].load);
				usable++;
			}
		mean /= usable;
		for (size_t w = 0; w < WORKERS; w++)
			open += fleet.items[w].usable &&
				kvw_guards_bar(&guards, &fleet.items[w], mean) == KVW_REASON_COUNT;
		d = pick(&p);
		EXPECT(fleet.items[d.pos].usable);
		if (usable == 1)
			EXPECT(d.reason == KVW_REASON_ONLY);
		else if (open > 0)
			EXPECT(kvw_guards_bar(&guards, &fleet.items[d.pos], mean) ==
				KVW_REASON_COUNT);
		else
			EXPECT(d.reason == KVW_REASON_PREFIX || d.reason == KVW_REASON_LOAD);
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("guards");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, too_many_in_flight_move_the_choice);
	tcase_add_test(tcase, a_worker_that_swallows_requests_is_bounded);
	tcase_add_test(tcase, kv_memory_is_a_price_and_bars_nothing);
	tcase_add_test(tcase, slow_start_limits_to_a_share_of_the_mean);
	tcase_add_test(tcase, slow_start_does_not_bar_an_idle_worker);
	tcase_add_test(tcase, guards_that_bar_all_are_ignored);
	tcase_add_test(tcase, guards_elsewhere_do_not_count);
	tcase_add_test(tcase, the_only_usable_worker_is_never_barred);
	tcase_add_test(tcase, prompts_that_are_not_understood_are_guarded_too);
	tcase_add_test(tcase, choices_respect_guards);
	return run_tcase("guards", tcase);
}
