/*
 * reconfigure_test.c - new options take effect in a running strategy, and what it knows stays; so does
 * what another strategy can use when it takes its place.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "routing/prefixaware.h"
#include "routing/strategies.h"
#include "strategy_fixture.h"
#include "tests/unit/suite.h"

#define MS     INT64_C(1000000)
#define SECOND (1000 * MS)

static void make_prompt(struct prompt *p, uint64_t symbol)
{
	prompt_start(p);
	for (unsigned i = 0; i < 60; i++)
		prompt_add(p, symbol);
}

static struct kvw_decision pick_at(
	struct kvw_strategy *of, const struct kvw_route_request *request, int64_t now_ns)
{
	struct kvw_decision out = {0};

	EXPECT(of->ops->pick(of, request, &fleet.set, now_ns, &out) == KVW_OK);
	return out;
}

static struct kvw_decision pick_prompt(struct kvw_strategy *of, struct prompt *p)
{
	struct kvw_route_request request = request_of(p);

	return pick_at(of, &request, 0);
}

static void reconfigure(const struct kvw_strategy_options *options)
{
	strategy->ops->reconfigure(strategy, options);
}

static struct kvw_cost cost_of(struct prompt *p, size_t worker)
{
	struct kvw_route_request request = request_of(p);
	struct kvw_cost costs[4];
	struct kvw_decision out;

	EXPECT(strategy->ops->explain(strategy, &request, &fleet.set, 0, costs, &out) == KVW_OK);
	return costs[worker];
}

/* The same options again: every decision is that of a twin that was left alone. */
START_TEST(equal_options_change_no_decision)
{
	struct kvw_strategy_options options = test_options();
	struct kvw_strategy *twin = NULL;
	uint64_t dice = 5;

	setup_strategy(kvw_strategies[_i]->name);
	twin = make_default(kvw_strategies[_i]->name);
	fleet_init(&fleet, 4);
	for (unsigned i = 0; i < 2000; i++) {
		struct kvw_route_request request;
		struct kvw_decision mine;
		struct kvw_decision its;
		struct kvw_outcome outcome = {.status = 200,
			.streamed = true,
			.first_token = true,
			.first_token_ns = 10 * MS};
		struct prompt p;
		char name[8];

		make_prompt(&p, test_random(&dice) % 50);
		snprintf(name, sizeof(name), "s%u", (unsigned)(test_random(&dice) % 50));
		request = request_of(&p);
		if (i % 3 == 0)
			request.session = kvw_slice_of(name);
		mine = pick_at(strategy, &request, i);
		its = pick_at(twin, &request, i);
		EXPECT(same_decision(&mine, &its));
		if (twin->ops->done != NULL) {
			twin->ops->done(twin, &its, &outcome, i);
			strategy->ops->done(strategy, &mine, &outcome, i);
		}
		reconfigure(&options);
	}
	twin->ops->destroy(twin);
	teardown();
}
END_TEST

/* prefixaware, and kvaware as one. */
START_TEST(costs_change_and_the_tree_stays)
{
	struct kvw_strategy_options options = test_options();
	struct kvw_lease lease = {0};
	struct kvw_worker_learned learned;
	struct kvw_cost before;
	struct kvw_cost after;
	struct prompt p;
	size_t home = 0;

	setup_strategy(_i == 0 ? "prefixaware" : "kvaware");
	fleet_init(&fleet, 4);
	make_prompt(&p, 1);
	home = pick_prompt(strategy, &p).pos;
	kvw_lease_take(&lease, fleet.items[home].load, 0, 0);
	kvw_lease_hold(&lease, 100);
	before = cost_of(&p, home);
	ck_assert_double_eq(before.context_ns, 0);
	options.omega *= 2;
	options.context_ns_per_token = 50;
	options.prefill_tokens_per_second /= 2;
	options.attention_ns_per_pair *= 2; /* so that all work takes twice as long */
	reconfigure(&options);
	after = cost_of(&p, home);
	ck_assert_uint_gt(before.hit_tokens[0], 0);
	ck_assert_uint_eq(after.hit_tokens[0], before.hit_tokens[0]);
	ck_assert_double_eq_tol(after.prefill_ns, 2 * before.prefill_ns, 1 + before.prefill_ns / 1e5);
	ck_assert_double_eq_tol(after.others_ns, 4 * before.others_ns, 1 + before.others_ns / 1e5);
	ck_assert_double_eq(after.context_ns, 5000);
	strategy->ops->learned(strategy, 0, &learned);
	ck_assert_double_eq_tol(learned.prefill_tokens_per_second, 4000, 1);
	kvw_lease_release(&lease, 0);
	teardown();
}
END_TEST

START_TEST(learned_rates_stay)
{
	struct kvw_strategy_options options = test_options();
	struct kvw_decision decision = {
		.prompt_tokens = 4000, .prefill_ns = 500 * MS, .chains = 1, .worker_id = 1};
	struct kvw_outcome outcome = {.status = 200,
		.first_token = true,
		.completed = true,
		.streamed = true,
		.first_token_ns = 400 * MS};
	struct kvw_worker_learned before;
	struct kvw_worker_learned after;

	setup_strategy("prefixaware");
	fleet_init(&fleet, 4);
	for (unsigned i = 0; i < 20; i++)
		strategy->ops->done(strategy, &decision, &outcome, 0);
	strategy->ops->learned(strategy, 1, &before);
	options.prefill_tokens_per_second = 30000;
	reconfigure(&options);
	strategy->ops->learned(strategy, 1, &after);
	ck_assert_uint_eq(after.rate_samples, 20);
	ck_assert_double_eq(after.observed_tokens_per_second, before.observed_tokens_per_second);
	ck_assert_double_eq(after.prefill_tokens_per_second, before.prefill_tokens_per_second);
	strategy->ops->learned(strategy, 3, &after); /* the fleet's median still */
	ck_assert_double_eq(after.prefill_tokens_per_second, before.prefill_tokens_per_second);
	teardown();
}
END_TEST

START_TEST(guards_and_capacity_change)
{
	struct kvw_strategy_options options = test_options();
	struct kvw_lease leases[8] = {0};
	struct kvw_prefixaware *pa = NULL;
	struct prompt p;
	size_t home = 0;

	setup_strategy("prefixaware");
	pa = (struct kvw_prefixaware *)strategy;
	fleet_init(&fleet, 4);
	for (unsigned i = 0; i < 4; i++)
		fleet.items[i].capacity_tokens = 0; /* unknown */
	make_prompt(&p, 1);
	home = pick_prompt(strategy, &p).pos;
	for (unsigned i = 0; i < 8; i++)
		kvw_lease_take(&leases[i], fleet.items[home].load, 0, 0);
	ck_assert_uint_eq(pick_prompt(strategy, &p).pos, home);
	options.inflight_bound = 2;
	options.inflight_gap = 1;
	reconfigure(&options);
	ck_assert_int_eq(pick_prompt(strategy, &p).reason, KVW_REASON_BOUND);
	for (unsigned i = 0; i < 8; i++)
		kvw_lease_release(&leases[i], 0);
	options.capacity_tokens = 100 * CHUNK_UNITS;
	reconfigure(&options);
	for (uint64_t i = 0; i < 50; i++) {
		make_prompt(&p, 100 + i);
		(void)pick_prompt(strategy, &p);
	}
	for (uint32_t w = 0; w < 4; w++)
		ck_assert_uint_le(kvw_radix_view_tokens(kvw_prefixaware_tree(pa), w), 100 * CHUNK_UNITS);
	teardown();
}
END_TEST

/* What LMCache holds stays known; what loading it takes is the new time. */
START_TEST(tiers_change_and_the_index_stays)
{
	struct kvw_strategy_options options = test_options();
	struct naming naming;
	struct kvw_route_request request;
	struct kvw_decision before;
	struct kvw_decision after;
	struct prompt p;

	setup_strategy("kvaware");
	fleet_init(&fleet, 1);
	make_prompt(&p, 1);
	request = request_of(&p);
	name_prompt(&naming, &p, 60 * CHUNK_UNITS - 1, &request);
	kvw_exact_set_coverage(strategy->ops->exact(strategy), 0, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	report_stored(strategy->ops->exact(strategy), 0, &naming.chains[KVW_REPORTER_ENGINE],
		KVW_TIER_DISK, 0, 100);
	before = pick_at(strategy, &request, 0);
	options.load_ns_per_token[KVW_TIER_DISK] /= 2;
	reconfigure(&options);
	after = pick_at(strategy, &request, 3600 * SECOND); /* no claim of the first is left */
	ck_assert_uint_eq(before.hit_tokens[KVW_TIER_DISK], 1600);
	ck_assert_uint_eq(after.hit_tokens[KVW_TIER_DISK], 1600);
	ck_assert_int_le(llabs(before.prefill_ns - after.prefill_ns - 1600 * 10000), 20000);
	teardown();
}
END_TEST

START_TEST(turns_go_on)
{
	struct kvw_strategy_options options = test_options();
	struct kvw_decision d;
	struct prompt p;

	setup_strategy("roundrobin");
	fleet_init(&fleet, 4);
	make_prompt(&p, 1);
	d = pick_prompt(strategy, &p);
	options.prefill_tokens_per_second /= 2;
	options.attention_ns_per_pair *= 2;
	reconfigure(&options);
	ck_assert_uint_eq(pick_prompt(strategy, &p).pos, 1);
	ck_assert_int_le(llabs(pick_prompt(strategy, &p).prefill_ns - 2 * d.prefill_ns), 2);
	teardown();
}
END_TEST

START_TEST(sessions_stay_until_the_new_ttl)
{
	union kvw_setting_value own[] = {{.integer = 10 * 1000}, {.integer = 1}, {.ratio = 100}};
	struct kvw_strategy_options options = test_options();
	struct kvw_lease leases[20] = {0};
	struct kvw_route_request request;
	struct kvw_strategy_stats stats;
	struct prompt p;
	size_t home = 0;

	setup_strategy("session");
	fleet_init(&fleet, 4);
	make_prompt(&p, 1);
	request = request_of(&p);
	request.session = kvw_slice_of("anna");
	home = pick_at(strategy, &request, 0).pos;
	for (unsigned i = 0; i < 20; i++)
		kvw_lease_take(&leases[i], fleet.items[home].load, 0, 0);
	options.own = own;
	reconfigure(&options);
	ck_assert_uint_eq(pick_at(strategy, &request, 9 * SECOND).pos, home);
	strategy->ops->stats(strategy, &stats);
	ck_assert_uint_eq(stats.sessions, 1);
	/* Forgotten by the new TTL, but the new bound lets it return. */
	ck_assert_uint_eq(pick_at(strategy, &request, 20 * SECOND).pos, home);
	own[2].ratio = 1;
	reconfigure(&options);
	ck_assert_uint_ne(pick_at(strategy, &request, 60 * SECOND).pos, home);
	for (unsigned i = 0; i < 20; i++)
		kvw_lease_release(&leases[i], 0);
	teardown();
}
END_TEST

/* --- another strategy --- */

static struct kvw_decision pick_of(struct kvw_strategy *of, uint64_t symbol)
{
	struct prompt p;

	make_prompt(&p, symbol);
	return pick_prompt(of, &p);
}

/* prefixaware and kvaware hand over the tree, the rates and the generations of caches, in both directions;
 * what is decided by the old one still ends there; and either may end first. */
START_TEST(the_tree_outlives_its_strategy)
{
	const char *names[] = {"prefixaware", "kvaware"};
	struct kvw_strategy_options options = test_options();
	struct kvw_decision decision = {
		.prompt_tokens = 4000, .prefill_ns = 500 * MS, .chains = 1, .worker_id = 1};
	struct kvw_outcome outcome = {.status = 200,
		.first_token = true,
		.completed = true,
		.streamed = true,
		.first_token_ns = 400 * MS};
	struct kvw_strategy *old = make_default(names[_i]);
	struct kvw_worker_learned learned;
	struct kvw_strategy_stats stats;
	size_t homes[20];

	fleet = (struct fleet){0};
	fleet_init(&fleet, 4);
	for (unsigned w = 0; w < 4; w++)
		fleet.items[w].generation = 7;
	for (unsigned i = 0; i < 20; i++)
		homes[i] = pick_of(old, i).pos;
	options.heir_of = old;
	strategy = make_strategy(names[1 - _i], &options);
	for (unsigned i = 0; i < 20; i++) {
		struct kvw_decision d = pick_of(strategy, i);

		ck_assert_uint_eq(d.pos, homes[i]);
		ck_assert_uint_gt(d.hit_tokens[KVW_TIER_DEVICE], 3000);
		old->ops->done(old, &decision, &outcome, 0);
	}
	(void)pick_of(strategy, 99);
	ck_assert_uint_gt(pick_of(old, 99).hit_tokens[KVW_TIER_DEVICE], 3000);
	old->ops->destroy(old);
	strategy->ops->learned(strategy, 1, &learned);
	ck_assert_uint_eq(learned.rate_samples, 20);
	strategy->ops->stats(strategy, &stats);
	ck_assert_uint_gt(stats.chunks, 0);
	ck_assert_uint_eq(pick_of(strategy, 5).pos, homes[5]);

	/* The new one ends first. */
	options.heir_of = strategy;
	old = make_strategy(names[_i], &options);
	strategy->ops->destroy(strategy);
	strategy = old;
	ck_assert_uint_eq(pick_of(strategy, 5).pos, homes[5]);
	ck_assert_uint_gt(pick_of(strategy, 5).hit_tokens[KVW_TIER_DEVICE], 3000);
	teardown();
}
END_TEST

/* All pairs: one that has no tree leaves nothing. */
START_TEST(any_strategy_follows_any)
{
	fleet = (struct fleet){0};
	fleet_init(&fleet, 4);
	for (unsigned from = 0; from < KVW_STRATEGY_COUNT; from++) {
		struct kvw_strategy_options options = test_options();
		struct kvw_strategy *old = make_default(kvw_strategies[from]->name);
		bool tree = old->ops == &kvw_prefixaware_ops || old->ops == &kvw_kvaware_ops;

		(void)pick_of(old, 1);
		options.heir_of = old;
		strategy = make_strategy(kvw_strategies[_i]->name, &options);
		old->ops->destroy(old);
		if (strategy->ops == &kvw_prefixaware_ops || strategy->ops == &kvw_kvaware_ops)
			ck_assert_int_eq(pick_of(strategy, 1).hit_tokens[KVW_TIER_DEVICE] > 0, tree);
		else
			ck_assert_uint_lt(pick_of(strategy, 1).pos, 4);
		strategy->ops->destroy(strategy);
	}
	fleet_finish(&fleet);
}
END_TEST

/* --- while others pick --- */

#define PICKERS 2
#define PICKS   3000 /* at least */
#define FEW     10   /* changes that the picks must have seen, however late they begin */

struct picker {
	struct kvw_strategy *strategy;
	uint64_t dice;
	_Atomic unsigned *running, *changes;
};

static void *run_picker(void *arg)
{
	struct picker *picker = arg;
	struct kvw_strategy *of = picker->strategy;

	for (unsigned i = 0; i < PICKS || atomic_load(picker->changes) < FEW; i++) {
		struct kvw_outcome outcome = {.status = 200,
			.streamed = true,
			.first_token = true,
			.first_token_ns = (int64_t)(1 + i % 50) * MS};
		struct kvw_route_request request;
		struct kvw_cost costs[4];
		struct kvw_decision d;
		struct prompt p;

		make_prompt(&p, test_random(&picker->dice) % 500);
		request = request_of(&p);
		if (i % 2 == 0)
			request.session = kvw_slice_of(i % 4 == 0 ? "anna" : "berta");
		EXPECT(of->ops->explain(of, &request, &fleet.set, i * MS, costs, &d) == KVW_OK);
		EXPECT(of->ops->pick(of, &request, &fleet.set, i * MS, &d) == KVW_OK);
		EXPECT(d.pos < 4 && d.prefill_ns >= 0);
		if (of->ops->done != NULL)
			of->ops->done(of, &d, &outcome, i * MS);
	}
	atomic_fetch_sub(picker->running, 1);
	return NULL;
}

START_TEST(options_change_while_others_pick)
{
	union kvw_setting_value own[] = {{.integer = 1000}, {.integer = 16}, {.ratio = 1}};
	struct kvw_strategy_options options = test_options();
	struct picker pickers[PICKERS];
	pthread_t threads[PICKERS];
	_Atomic unsigned running = PICKERS, changes = 0;

	setup_strategy(kvw_strategies[_i]->name);
	fleet_init(&fleet, 4);
	fleet.items[1].share = 0.5f; /* picks count what it is sent */
	for (unsigned i = 0; i < PICKERS; i++) {
		pickers[i] = (struct picker){strategy, i + 1, &running, &changes};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run_picker, &pickers[i]), 0);
	}
	for (; atomic_load(&running) > 0; atomic_fetch_add(&changes, 1)) {
		options = test_options();
		if (atomic_load(&changes) % 2 == 0) {
			options.own = own;
			options.omega = 1;
			options.context_ns_per_token = 10;
			options.prefill_tokens_per_second = 100000;
			options.attention_ns_per_pair = 0;
			options.inflight_bound = 1;
			options.inflight_gap = 1;
			options.capacity_tokens = 10000;
			options.load_ns_per_token[KVW_TIER_HOST] = 0;
			options.eviction_weight = 0;
		}
		reconfigure(&options);
		(void)sched_yield();
	}
	for (unsigned i = 0; i < PICKERS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_ge(atomic_load(&changes), FEW);
	teardown();
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("reconfigure");

	tcase_add_loop_test(tcase, equal_options_change_no_decision, 0, KVW_STRATEGY_COUNT);
	tcase_add_loop_test(tcase, costs_change_and_the_tree_stays, 0, 2);
	tcase_add_test(tcase, learned_rates_stay);
	tcase_add_test(tcase, guards_and_capacity_change);
	tcase_add_test(tcase, tiers_change_and_the_index_stays);
	tcase_add_test(tcase, turns_go_on);
	tcase_add_test(tcase, sessions_stay_until_the_new_ttl);
	tcase_add_loop_test(tcase, the_tree_outlives_its_strategy, 0, 2);
	tcase_add_loop_test(tcase, any_strategy_follows_any, 0, KVW_STRATEGY_COUNT);
	tcase_add_loop_test(tcase, options_change_while_others_pick, 0, KVW_STRATEGY_COUNT);
	tcase_set_timeout(tcase, 120);
	return run_tcase("reconfigure", tcase);
}
