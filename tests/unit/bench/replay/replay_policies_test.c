/*
 * replay_policies_test.c - each policy's own rule, on fleets in a state made for it.
 */
#include <check.h>

#include "bench/replay/policy_kvway.h"
#include "replay_support.h"
#include "tests/unit/suite.h"

/* A fleet, its jobs, and one policy that has not been asked yet. */
static struct scene {
	struct kvb_jobs jobs;
	struct kvb_fleet *fleet;
	struct kvw_config *config;
	const struct kvb_policy *policy;
	void *state;
	int64_t now_ns;
} s;

static void setup(void)
{
	s = (struct scene){0};
}

/* Jobs must have been added before. strategy: of kvway; NULL: its default. */
static void open_scene_of(const char *policy, const char *strategy, uint32_t workers)
{
	struct kvb_fleet_options options = test_fleet_options(workers);
	struct kvb_policy_env env;

	s.fleet = kvb_fleet_create(&options, &s.jobs);
	s.config = test_config_of(strategy);
	s.policy = kvb_policy_find(policy);
	ck_assert_ptr_nonnull(s.policy);
	env = (struct kvb_policy_env){s.fleet, s.config, 1, s.policy->param};
	s.state = s.policy->ops->create(&env);
}

static void open_scene(const char *policy, uint32_t workers)
{
	open_scene_of(policy, NULL, workers);
}

static uint32_t pick(uint32_t job)
{
	return s.policy->ops->pick(s.state, job, s.now_ns);
}

static void send(uint32_t job, uint32_t worker)
{
	kvb_fleet_send(s.fleet, job, worker, s.now_ns);
}

/* Picks and sends, as the loop does. */
static uint32_t route(uint32_t job)
{
	uint32_t worker = pick(job);

	send(job, worker);
	return worker;
}

static void on_token(void *user, uint32_t job, bool first, bool last)
{
	(void)user;
	if (first && s.policy->ops->first_token != NULL)
		s.policy->ops->first_token(s.state, job, s.fleet->courses[job].first_ns);
	if (last && s.policy->ops->done != NULL)
		s.policy->ops->done(s.state, job, s.fleet->courses[job].end_ns);
}

/* One step of one worker; false if it has nothing to do. */
static bool step(uint32_t worker)
{
	struct kvb_fleet_worker *w = &s.fleet->workers[worker];

	kvb_fleet_wake(s.fleet, worker, s.now_ns > w->until_ns ? s.now_ns : w->until_ns);
	if (!w->busy)
		return false;
	kvb_fleet_step_over(s.fleet, worker, on_token, NULL);
	return true;
}

/* Lets all workers finish what they have. */
static void drain(void)
{
	uint32_t workers = s.fleet->options.workers;

	for (uint32_t w = 0; w < workers; w++) {
		while (step(w))
			;
		ck_assert_uint_eq(s.fleet->workers[w].sent.inflight, 0);
		ck_assert_uint_eq(s.fleet->workers[w].sent.unanswered, 0);
		ck_assert_uint_eq(s.fleet->workers[w].sent.prefill_tokens, 0);
	}
	for (uint32_t w = 0; w < workers; w++)
		if (s.fleet->workers[w].until_ns > s.now_ns)
			s.now_ns = s.fleet->workers[w].until_ns;
}

/* A test without a scene leaves it empty. */
static void close_scene(void)
{
	if (s.fleet == NULL)
		return;
	drain();
	s.policy->ops->destroy(s.state);
	kvb_fleet_destroy(s.fleet);
	kvw_config_destroy(s.config);
	kvb_jobs_finish(&s.jobs);
}

START_TEST(test_round_robin_takes_turns)
{
	for (uint32_t i = 0; i < 7; i++)
		test_add(&s.jobs, 0, 1, 1, 600, 1);
	open_scene("round_robin", 3);
	for (uint32_t i = 0; i < 7; i++)
		ck_assert_uint_eq(route(i), i % 3);
}
END_TEST

START_TEST(test_least_requests_finds_the_idle_one)
{
	for (uint32_t i = 0; i < 4; i++)
		test_add(&s.jobs, 0, i, 0, 600, 1);
	open_scene("least_requests", 4);
	send(0, 0);
	send(1, 1);
	send(2, 3);
	ck_assert_uint_eq(pick(3), 2);
}
END_TEST

START_TEST(test_prefix_hrw_keeps_a_prefix_together_up_to_the_bound)
{
	uint32_t counts[4] = {0};

	for (uint32_t i = 0; i < 40; i++)
		test_add(&s.jobs, 0, 1, 4, 2500, 1);
	open_scene("prefix_hrw", 4);
	for (uint32_t i = 0; i < 40; i++) {
		uint32_t worker = route(i);

		counts[worker]++;
		/* ceil(1.25 * mean), this one counted */
		ck_assert_uint_le(counts[worker], (5 * (i + 1) + 15) / 16);
	}
	drain();
	ck_assert_uint_eq(pick(0), pick(1));
}
END_TEST

START_TEST(test_cache_aware_follows_a_match_above_its_threshold)
{
	uint32_t home;

	test_add(&s.jobs, 0, 1, 8, 4096, 1);
	test_add(&s.jobs, 0, 1, 8, 10000, 1); /* 41 % of it known */
	test_add(&s.jobs, 0, 2, 8, 4096, 1);
	test_add(&s.jobs, 0, 1, 4, 8192, 1); /* 25 % of it known */
	open_scene("cache_aware", 2);
	home = route(0);
	ck_assert_uint_eq(home, 0);
	ck_assert_uint_eq(route(1), home);
	ck_assert_uint_eq(route(2), 1);
	ck_assert_uint_eq(pick(3), 1);
}
END_TEST

START_TEST(test_cache_aware_leaves_an_imbalance)
{
	for (uint32_t i = 0; i < 80; i++)
		test_add(&s.jobs, 0, 1, 8, 4200, 1);
	open_scene("cache_aware", 2);
	for (uint32_t i = 0; i < 65; i++)
		ck_assert_uint_eq(route(i), 0);
	ck_assert_uint_eq(route(65), 1); /* 65 - 0 is more than 64 */
	ck_assert_uint_eq(route(66), 0); /* 65 - 1 is not */
}
END_TEST

START_TEST(test_llmd_is_sticky_above_four_fifths_only)
{
	test_add(&s.jobs, 0, 1, 10, 5120, 1);
	test_add(&s.jobs, 0, 1, 10, 6000, 1); /* 85 % of it known */
	test_add(&s.jobs, 0, 1, 10, 30000, 1);
	test_add(&s.jobs, 0, 1, 10, 9000, 1); /* 57 % */
	open_scene("llmd", 2);
	send(0, 0);
	drain();
	send(2, 0);
	ck_assert_uint_eq(pick(1), 0);
	ck_assert_uint_eq(pick(3), 1);
}
END_TEST

START_TEST(test_llmd_gives_up_beyond_its_penalty)
{
	test_add(&s.jobs, 0, 1, 10, 5120, 1);
	test_add(&s.jobs, 0, 1, 10, 5600, 1);
	for (uint32_t i = 0; i < 12; i++)
		test_add(&s.jobs, 0, 9, 0, 20000, 1);
	test_add(&s.jobs, 0, 9, 0, 100000, 1);
	open_scene("llmd_14s", 2);
	send(0, 0);
	drain();
	for (uint32_t i = 2; i < 13; i++)
		send(i, 0);
	ck_assert_uint_eq(pick(1), 0); /* 220,000 tokens are 13.8 s */
	send(13, 0);
	ck_assert_uint_eq(pick(1), 1); /* 240,000 are 15.1 s */
}
END_TEST

START_TEST(test_dynamo_weighs_blocks)
{
	uint32_t home;

	test_add(&s.jobs, 0, 1, 16, 8192, 100);
	test_add(&s.jobs, 0, 1, 16, 8192, 100);
	test_add(&s.jobs, 0, 2, 0, 1000, 1);
	open_scene("dynamo", 2);
	home = route(0);
	ck_assert(step(home));
	/* Computed there, and its blocks are in use there already; 512 + 512 elsewhere. */
	ck_assert_uint_eq(route(1), home);
	/* Nothing of it is anywhere, and the other worker has nothing. */
	ck_assert_uint_eq(route(2), 1 - home);
}
END_TEST

START_TEST(test_lmetric_multiplies)
{
	test_add(&s.jobs, 0, 1, 8, 4096, 1);
	test_add(&s.jobs, 0, 1, 8, 5000, 1);
	for (uint32_t i = 0; i < 12; i++)
		test_add(&s.jobs, 0, 1, 8, 4200, 500);
	open_scene("lmetric_port", 2);
	send(0, 0);
	drain();
	/* 920 new tokens there and 5000 here. */
	for (uint32_t i = 2; i < 6; i++)
		send(i, 0);
	ck_assert_uint_eq(pick(1), 0); /* 920 * 5 */
	send(6, 0);
	ck_assert_uint_eq(pick(1), 1); /* 920 * 6 */
}
END_TEST

START_TEST(test_cost_goes_where_it_takes_least_time)
{
	test_add(&s.jobs, 0, 1, 8, 4096, 1);
	test_add(&s.jobs, 0, 1, 8, 5000, 1);
	test_add(&s.jobs, 0, 2, 0, 2000, 1);
	test_add(&s.jobs, 0, 2, 0, 8000, 1);
	open_scene("min_ttft", 2);
	send(0, 0);
	drain();
	send(2, 0);
	ck_assert_uint_eq(pick(1), 0); /* 2,000 tokens wait, 4,080 are saved */
	send(3, 0);
	ck_assert_uint_eq(pick(1), 1); /* 10,000 wait */
}
END_TEST

START_TEST(test_kvway_goes_back_to_the_prefix)
{
	uint32_t home;

	for (uint32_t i = 0; i < 8; i++)
		test_add(&s.jobs, 0, 1, 8, 4096 + 100 * i, 1);
	open_scene("kvway", 8);
	home = route(0);
	drain();
	for (uint32_t i = 1; i < 8; i++) {
		ck_assert_uint_eq(route(i), home);
		drain();
	}
}
END_TEST

START_TEST(test_kvway_takes_the_configured_strategy)
{
	uint32_t home;

	for (uint32_t i = 0; i < 6; i++)
		test_add(&s.jobs, 0, 1, 8, 4096 + 100 * i, 1);
	open_scene_of("kvway", "roundrobin", 3);
	home = route(0);
	for (uint32_t i = 1; i < 6; i++) {
		drain();
		ck_assert_uint_eq(route(i), (home + i) % 3);
	}
}
END_TEST

/* The proxy reads no prompt for a strategy that does not ask for it, and admission does not know it either. */
START_TEST(test_kvway_hands_over_what_the_strategy_asks_for)
{
	uint64_t key = 0;

	test_add(&s.jobs, 0, 1, 8, 4096, 1);
	open_scene_of("kvway", "roundrobin", 2);
	ck_assert_uint_eq(kvb_kvway_tokens(s.state, 0), 0);
	ck_assert_int_eq(kvw_load_queue_ns(kvb_kvway_load(s.state, route(0), &key), s.now_ns), 0);
}
END_TEST

/* Three prompts that share most of their memory: the metrics that are read while they run show it, though no further
 * request comes. */
START_TEST(test_kvway_reads_metrics_between_arrivals)
{
	struct kvw_load *load = NULL;
	uint64_t key = 0;

	for (uint32_t i = 0; i < 3; i++)
		test_add(&s.jobs, 0, 1, 300, 153700, 600 + 200 * i);
	open_scene("kvway", 1);
	for (uint32_t i = 0; i < 3; i++)
		route(i);
	load = kvb_kvway_load(s.state, 0, &key);
	ck_assert_float_eq(atomic_load(&load->room->tokens), 1000000);
	drain();
	ck_assert_float_gt(atomic_load(&load->room->tokens), 1050000);
}
END_TEST

START_TEST(test_lowest_breaks_ties_evenly)
{
	double costs[4] = {2, 1, 1, 1};
	uint32_t counts[4] = {0};
	uint64_t random = 1;

	for (uint32_t i = 0; i < 3000; i++)
		counts[kvb_lowest(costs, 4, &random)]++;
	ck_assert_uint_eq(counts[0], 0);
	for (uint32_t w = 1; w < 4; w++)
		ck_assert(counts[w] > 900 && counts[w] < 1100);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, close_scene);
	tcase_add_test(tcase, test_round_robin_takes_turns);
	tcase_add_test(tcase, test_least_requests_finds_the_idle_one);
	tcase_add_test(tcase, test_prefix_hrw_keeps_a_prefix_together_up_to_the_bound);
	tcase_add_test(tcase, test_cache_aware_follows_a_match_above_its_threshold);
	tcase_add_test(tcase, test_cache_aware_leaves_an_imbalance);
	tcase_add_test(tcase, test_llmd_is_sticky_above_four_fifths_only);
	tcase_add_test(tcase, test_llmd_gives_up_beyond_its_penalty);
	tcase_add_test(tcase, test_dynamo_weighs_blocks);
	tcase_add_test(tcase, test_lmetric_multiplies);
	tcase_add_test(tcase, test_cost_goes_where_it_takes_least_time);
	tcase_add_test(tcase, test_kvway_goes_back_to_the_prefix);
	tcase_add_test(tcase, test_kvway_takes_the_configured_strategy);
	tcase_add_test(tcase, test_kvway_hands_over_what_the_strategy_asks_for);
	tcase_add_test(tcase, test_kvway_reads_metrics_between_arrivals);
	tcase_add_test(tcase, test_lowest_breaks_ties_evenly);
	return run_tcase("replay_policies", tcase);
}
