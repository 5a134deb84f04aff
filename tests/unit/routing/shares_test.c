/*
 * shares_test.c - a worker whose share is below 1 gets that share of an even share of the requests, with
 * every strategy, idle or loaded.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "routing/strategies.h"
#include "strategy_fixture.h"
#include "tests/unit/suite.h"

#define MS      INT64_C(1000000)
#define PICKS   10000
#define WORKERS 4

/* How requests come. */
struct traffic {
	unsigned inflight; /* of all workers, once they are under way */
	bool sessions;     /* each is the first of a session of its own */
	bool understood;   /* prompts are */
	unsigned prompts;  /* different ones; 0: each is another */
};

static const struct traffic idle = {.understood = true};

/* Sends PICKS requests 5 ms apart, of which each is answered when `inflight` more have come. */
static void play(const struct traffic *traffic, unsigned got[WORKERS])
{
	struct kvw_lease leases[64] = {0};

	EXPECT(traffic->inflight < 64);
	memset(got, 0, WORKERS * sizeof(got[0]));
	for (unsigned i = 0; i < PICKS; i++) {
		struct kvw_lease *lease = &leases[traffic->inflight > 0 ? i % traffic->inflight : 0];
		struct kvw_route_request request;
		struct kvw_outcome outcome = {.status = 200};
		struct kvw_decision d;
		struct prompt p;
		char name[16];

		prompt_start(&p);
		for (unsigned k = 0; k < 8; k++)
			prompt_add(&p, traffic->prompts > 0 ? i % traffic->prompts : i);
		request = request_of(&p);
		request.content_known = traffic->understood;
		snprintf(name, sizeof(name), "session %u", i);
		if (traffic->sessions)
			request.session = kvw_slice_of(name);
		kvw_lease_first_token(lease, i * 5 * MS);
		kvw_lease_release(lease, i * 5 * MS);
		EXPECT(strategy->ops->pick(strategy, &request, &fleet.set, i * 5 * MS, &d) == KVW_OK);
		got[d.pos]++;
		if (traffic->inflight > 0)
			kvw_lease_take(lease, fleet.items[d.pos].load, d.prefill_ns, i * 5 * MS);
		if (strategy->ops->done != NULL)
			strategy->ops->done(strategy, &d, &outcome, i * 5 * MS);
	}
	for (unsigned i = 0; i < 64; i++)
		kvw_lease_release(&leases[i], PICKS * 5 * MS);
}

/* Within `tolerance` of PICKS * share / sum of shares. */
static void expect_shares(const unsigned got[WORKERS], double tolerance)
{
	double sum = 0;

	for (unsigned w = 0; w < WORKERS; w++)
		sum += (double)fleet.items[w].share;
	for (unsigned w = 0; w < WORKERS; w++) {
		double even = PICKS * (double)fleet.items[w].share / sum;

		ck_assert_double_eq_tol(got[w], even, tolerance * even);
	}
}

static void check_all(const char *name, const struct traffic *traffic, const float shares[WORKERS],
	double tolerance)
{
	unsigned got[WORKERS];

	setup_strategy(name);
	fleet_init(&fleet, WORKERS);
	for (unsigned w = 0; w < WORKERS; w++)
		fleet.items[w].share = shares[w];
	play(traffic, got);
	expect_shares(got, tolerance);
	teardown();
}

static const float one_small[WORKERS] = {1, 1, 0.1f, 1};
static const float different[WORKERS] = {1, 0.5f, 0.01f, 0.25f};
static const float all_small[WORKERS] = {0.1f, 0.2f, 0.2f, 0.1f};

START_TEST(an_idle_fleet)
{
	const char *name = kvw_strategies[_i]->name;
	struct traffic blind = {.understood = false};

	check_all(name, &idle, one_small, 0.1);
	check_all(name, &idle, different, 0.1);
	check_all(name, &idle, all_small, 0.1);
	check_all(name, &blind, one_small, 0.1);
}
END_TEST

START_TEST(a_loaded_fleet)
{
	const char *name = kvw_strategies[_i]->name;
	struct traffic light = {.inflight = 3, .understood = true};
	struct traffic heavy = {.inflight = 40, .understood = true};

	check_all(name, &light, one_small, 0.1);
	/* By its guard a worker of 0.1 may have one request where the others have ten: whole numbers. */
	check_all(name, &heavy, one_small, 0.25);
	/* Guards by requests in flight bar all of these, and then count for nothing. */
	if (_i != KVW_STRATEGY_prefixaware && _i != KVW_STRATEGY_kvaware)
		check_all(name, &heavy, all_small, 0.1);
}
END_TEST

/* Tolerances are what hashes of 10,000 sessions scatter; and with 40 in flight a worker of 0.1 is now and
 * then at its load bound of 2. */
START_TEST(sessions)
{
	struct traffic alone = {.sessions = true, .understood = true};
	struct traffic heavy = {.inflight = 40, .sessions = true, .understood = true};

	check_all("session", &alone, one_small, 0.15);
	check_all("session", &alone, all_small, 0.15);
	check_all("session", &heavy, one_small, 0.3);
}
END_TEST

/* Prompts that all know: the prefix is everywhere after a while. */
START_TEST(the_same_prompts_again)
{
	struct traffic again = {.inflight = 20, .understood = true, .prompts = 50};

	check_all(_i == 0 ? "prefixaware" : "kvaware", &again, one_small, 0.1);
}
END_TEST

/* A share of 0, as slow start begins with, bars no worker that is alone. */
START_TEST(without_a_share_but_alone)
{
	static const float none[WORKERS] = {0, 0, 0, 0};
	unsigned got[WORKERS];

	setup_strategy(kvw_strategies[_i]->name);
	fleet_init(&fleet, WORKERS);
	for (unsigned w = 0; w < WORKERS; w++)
		fleet.items[w].share = none[w];
	play(&idle, got);
	for (unsigned w = 0; w < WORKERS; w++)
		ck_assert_uint_gt(got[w], PICKS / WORKERS / 2);
	for (unsigned w = 1; w < WORKERS; w++)
		fleet.items[w].usable = false;
	play(&idle, got);
	ck_assert_uint_eq(got[0], PICKS);
	teardown();
}
END_TEST

/* Rounds differ, and no worker is served twice in one. */
START_TEST(turns_come_evenly)
{
	unsigned since = 0;

	setup_strategy("roundrobin");
	fleet_init(&fleet, WORKERS);
	fleet.items[2].share = 0.25f;
	for (unsigned i = 0; i < 1000; i++) {
		struct kvw_route_request request = {0};
		struct kvw_decision d;

		EXPECT(strategy->ops->pick(strategy, &request, &fleet.set, 0, &d) == KVW_OK);
		since++;
		if (d.pos != 2)
			continue;
		ck_assert(i < 13 || since == 13); /* four rounds of three, and its own */
		since = 0;
	}
	teardown();
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("shares");

	tcase_add_loop_test(tcase, an_idle_fleet, 0, KVW_STRATEGY_COUNT);
	tcase_add_loop_test(tcase, a_loaded_fleet, 0, KVW_STRATEGY_COUNT);
	tcase_add_test(tcase, sessions);
	tcase_add_loop_test(tcase, the_same_prompts_again, 0, 2);
	tcase_add_loop_test(tcase, without_a_share_but_alone, 0, KVW_STRATEGY_COUNT);
	tcase_add_test(tcase, turns_come_evenly);
	tcase_set_timeout(tcase, 120);
	return run_tcase("shares", tcase);
}
