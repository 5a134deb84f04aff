/*
 * replay_run_test.c - what is true of every replay: requests end once, times follow from the
 * profile, a seed decides everything, and no policy beats the limit.
 */
#include <check.h>
#include <math.h>
#include <string.h>

#include "bench/replay/replay_limit.h"
#include "bench/replay/replay_scenarios.h"
#include "replay_support.h"
#include "tests/unit/suite.h"

/* A policy that counts its calls. */
struct watcher {
	uint32_t picks[8], firsts[8], dones[8];
	int64_t picked_ns[8], first_ns[8], done_ns[8];
	uint32_t worker; /* that it chooses */
};
static struct watcher watcher;

static void *watch_create(const struct kvb_policy_env *env)
{
	memset(&watcher, 0, sizeof(watcher));
	watcher.worker = (uint32_t)env->param;
	return &watcher;
}

static uint32_t watch_pick(void *self, uint32_t job, int64_t now_ns)
{
	struct watcher *w = self;

	w->picks[job]++;
	w->picked_ns[job] = now_ns;
	return w->worker;
}

static void watch_first(void *self, uint32_t job, int64_t now_ns)
{
	struct watcher *w = self;

	w->firsts[job]++;
	w->first_ns[job] = now_ns;
}

static void watch_done(void *self, uint32_t job, int64_t now_ns)
{
	struct watcher *w = self;

	w->dones[job]++;
	w->done_ns[job] = now_ns;
}

static void watch_destroy(void *self)
{
	(void)self;
}

static const struct kvb_policy_ops watch_ops = {
	.create = watch_create,
	.pick = watch_pick,
	.first_token = watch_first,
	.done = watch_done,
	.destroy = watch_destroy};

/* The jobs of the test that runs, and the result of the last watch(). */
static struct kvb_jobs jobs;
static struct kvb_replay_result r;

static void setup(void)
{
	jobs = (struct kvb_jobs){0};
	r = (struct kvb_replay_result){0};
}

static void teardown(void)
{
	kvb_replay_result_finish(&r);
	kvb_jobs_finish(&jobs);
}

static void watch(const struct kvb_fleet_options *options, uint32_t worker)
{
	struct kvb_policy policy = {"watch", &watch_ops, false, worker, ""};

	kvb_replay_result_finish(&r);
	r = kvb_replay_run(options, &jobs, 1, &policy, NULL, NULL, 1);
}

/* Seconds of a step that prefills one prompt. */
static double prefill_s(const struct kvb_profile *p, double tokens)
{
	return (p->base_ms * 1e6 + tokens * 1e9 / p->prefill_tps +
		       p->attention_ns * tokens * tokens / 2) /
	       1e9;
}

START_TEST(test_lone_request_takes_what_the_profile_says)
{
	struct kvb_fleet_options options = test_fleet_options(2);
	double token_s = (12e6 + 48800 + 45 * 4001.0 + 1.75 * 4000.5) / 1e9;

	test_add(&jobs, 1, 1, 0, 4000, 2);
	watch(&options, 0);
	ck_assert_double_eq_tol(r.ttft_mean, prefill_s(options.profile, 4000), 1e-6);
	ck_assert_double_eq_tol(r.tpot_mean, token_s, 1e-6);
	ck_assert_double_eq_tol(r.e2e_mean, r.ttft_mean + token_s, 1e-6);
	ck_assert_double_eq(r.goodput, 1);
	ck_assert_double_eq(r.cached_share, 0);
}
END_TEST

START_TEST(test_same_prompt_again_is_cached_but_for_its_last_block)
{
	struct kvb_fleet_options options = test_fleet_options(1);

	test_add(&jobs, 0, 1, 8, 4096, 1);
	test_add(&jobs, 9, 1, 8, 4096, 1);
	watch(&options, 0);
	ck_assert_double_eq_tol(r.cached_share, 4080 / 8192.0, 1e-9);
}
END_TEST

START_TEST(test_each_request_is_reported_once_and_in_order)
{
	struct kvb_fleet_options options = test_fleet_options(2);

	jobs = test_jobs(8, 20);
	watch(&options, 1);
	for (uint32_t j = 0; j < 8; j++) {
		ck_assert_uint_eq(watcher.picks[j], 1);
		ck_assert_uint_eq(watcher.firsts[j], 1);
		ck_assert_uint_eq(watcher.dones[j], 1);
		ck_assert_int_eq(watcher.picked_ns[j], jobs.items[j].due_ns);
		ck_assert_int_gt(watcher.first_ns[j], watcher.picked_ns[j]);
		ck_assert_int_ge(watcher.done_ns[j], watcher.first_ns[j]);
	}
	ck_assert_double_eq_tol(r.share[0], 0, 1e-9);
	ck_assert_double_eq_tol(r.share[1], 1, 1e-9);
}
END_TEST

START_TEST(test_a_follower_comes_after_the_end_and_its_gap)
{
	struct kvb_fleet_options options = test_fleet_options(1);

	test_add(&jobs, 0, 1, 2, 1024, 20);
	test_add(&jobs, 0, 1, 4, 2048, 20);
	kvb_jobs_follow(&jobs, 0, 1, 2500000000);
	watch(&options, 0);
	ck_assert_int_eq(watcher.picked_ns[1], watcher.done_ns[0] + 2500000000);
}
END_TEST

START_TEST(test_requests_of_one_moment_may_be_apart)
{
	struct kvb_jobs apart = {0};

	for (uint32_t i = 0; i < 3; i++)
		test_add(&apart, 1, i, 0, 600, 1);
	test_add(&apart, 1.025, 3, 0, 600, 1);
	test_add(&apart, 2, 4, 0, 600, 1);
	kvb_jobs_pause(&apart, 10000000);
	ck_assert_int_eq(apart.items[2].due_ns, 1020000000);
	ck_assert_int_eq(apart.items[3].due_ns, 1030000000);
	ck_assert_int_eq(apart.items[4].due_ns, 2000000000);
	kvb_jobs_finish(&apart);
}
END_TEST

START_TEST(test_slow_and_stalled_worker)
{
	struct kvb_fleet_options options = test_fleet_options(2);

	test_add(&jobs, 10, 1, 0, 4000, 1);
	options.odd = (struct kvb_oddity){.slower = 3};
	watch(&options, 0);
	ck_assert_double_eq_tol(r.ttft_mean, 3 * prefill_s(options.profile, 4000), 1e-6);
	watch(&options, 1);
	ck_assert_double_eq_tol(r.ttft_mean, prefill_s(options.profile, 4000), 1e-6);
	options.odd =
		(struct kvb_oddity){.stall_begin_ns = 5000000000, .stall_end_ns = 15000000000};
	watch(&options, 0);
	ck_assert_double_eq_tol(r.ttft_mean, 5 + prefill_s(options.profile, 4000), 1e-6);
	ck_assert_double_eq(r.odd_share, 1);
}
END_TEST

START_TEST(test_what_goes_past_the_router_is_not_counted)
{
	struct kvb_fleet_options options = test_fleet_options(2);

	test_add(&jobs, 0, 1, 8, 4096, 1);
	test_add(&jobs, 10, 1, 8, 4097, 1); /* finds what the first has left */
	kvb_jobs_direct(&jobs, 0, 1);
	watch(&options, 1);
	ck_assert_uint_eq(watcher.picks[0] + watcher.firsts[0] + watcher.dones[0], 0);
	ck_assert_uint_eq(watcher.picks[1] + watcher.firsts[1] + watcher.dones[1], 3);
	ck_assert_uint_eq(r.requests, 1);
	ck_assert_double_eq_tol(r.cached_share, 4096.0 / 4097, 1e-9);
	ck_assert_double_eq(r.share[1], 1);
	ck_assert_double_eq(r.goodput, 1);
	ck_assert(isnan(r.foretold));
}
END_TEST

/* A reset while a prompt is computed restarts it. */
START_TEST(test_reset_caches_are_empty)
{
	struct kvb_fleet_options options = test_fleet_options(1);
	double each = prefill_s(options.profile, 4096);

	for (uint32_t i = 0; i < 4; i++)
		test_add(&jobs, 10 * i, 1, 8, 4096, 1);
	options.resets = (struct kvb_resets){25000000000, 100000000000};
	watch(&options, 0);
	ck_assert_double_eq_tol(r.cached_share, 0.5 * 4080 / 4096, 1e-9);
	kvb_jobs_finish(&jobs);
	test_add(&jobs, 1, 1, 8, 4096, 20);
	options.resets = (struct kvb_resets){1000000000 + (int64_t)(each * 1e9) + 1, 100000000000};
	watch(&options, 0);
	ck_assert_double_eq_tol(r.ttft_mean, each, 1e-6);
	ck_assert_double_gt(r.e2e_mean, 2 * each);
}
END_TEST

/* kvaware knows what only events report to the router; prefixaware does not. */
START_TEST(test_events_report_what_the_router_cannot_know)
{
	struct kvb_fleet_options options = test_fleet_options(4);
	struct kvw_config *config = test_config();
	struct kvb_replay_result guessed;
	struct kvb_replay_result told;

	jobs = test_jobs(600, 12);
	for (uint32_t j = 0; j < jobs.count; j += 3)
		kvb_jobs_direct(&jobs, j, j / 3 % 4);
	options.kv_tokens = 300000;
	options.resets = (struct kvb_resets){10000000000, 3000000000};
	guessed = kvb_replay_run(&options, &jobs, 1, kvb_policy_find("kvway"), NULL, config, 1);
	told = kvb_replay_run(&options, &jobs, 1, kvb_policy_find("kvaware"), NULL, config, 1);
	ck_assert_uint_eq(told.requests, 400);
	ck_assert_double_gt(told.foretold, 0.97);
	ck_assert_double_lt(guessed.foretold, 0.9);
	ck_assert_double_ge(told.cached_share, guessed.cached_share);
	kvb_replay_result_finish(&guessed);
	kvb_replay_result_finish(&told);
	kvw_config_destroy(config);
}
END_TEST

START_TEST(test_a_seed_decides_everything)
{
	struct kvb_fleet_options options = test_fleet_options(4);
	struct kvw_config *config = test_config();
	const struct kvb_policy *policy = &kvb_policies[_i];
	struct kvb_replay_result a;
	struct kvb_replay_result b;

	jobs = test_jobs(200, 20);
	a = kvb_replay_run(&options, &jobs, 1, policy, NULL, config, 3);
	b = kvb_replay_run(&options, &jobs, 1, policy, NULL, config, 3);
	ck_assert_mem_eq(a.share, b.share, 4 * sizeof(a.share[0]));
	ck_assert_double_eq(a.ttft_mean, b.ttft_mean);
	ck_assert_double_eq(a.e2e_mean, b.e2e_mean);
	ck_assert_double_eq(a.cached_share, b.cached_share);
	ck_assert_double_gt(a.goodput, 0);
	kvb_replay_result_finish(&a);
	kvb_replay_result_finish(&b);
	kvw_config_destroy(config);
}
END_TEST

/* At half, about all and three times of what the fleet can do. */
START_TEST(test_no_policy_beats_the_limit)
{
	static const double rates[] = {8, 16, 50};
	struct kvb_fleet_options options = test_fleet_options(4);
	const struct kvb_policy *policy = &kvb_policies[_i];
	struct kvw_config *config = test_config();

	for (size_t i = 0; i < 3; i++) {
		struct kvb_replay_result limit;

		jobs = test_jobs(300, rates[i]);
		limit = kvb_replay_limit(&options, &jobs, 1);
		r = kvb_replay_run(&options, &jobs, 1, policy, NULL, config, 1);
		ck_assert_double_le(r.goodput, limit.goodput + 1e-9);
		ck_assert_double_ge(r.ttft_mean, limit.ttft_mean);
		ck_assert_double_ge(r.e2e_mean, limit.e2e_mean);
		ck_assert_double_le(r.cached_share, limit.cached_share + 1e-9);
		kvb_replay_result_finish(&r);
		kvb_jobs_finish(&jobs);
	}
	kvw_config_destroy(config);
}
END_TEST

START_TEST(test_the_limit_is_not_a_formality)
{
	struct kvb_fleet_options options = test_fleet_options(1);
	struct kvb_replay_result limit;

	/* Sixty prompts at once, each of 0.22 s: not all can begin within 2.5 s. */
	for (uint32_t i = 0; i < 60; i++)
		test_add(&jobs, 0, i, 0, 4096, 1);
	limit = kvb_replay_limit(&options, &jobs, 1);
	ck_assert_double_lt(limit.goodput, 0.3);
	ck_assert_double_gt(limit.goodput, 0.1);
	ck_assert_double_gt(limit.ttft_mean, 5);
}
END_TEST

START_TEST(test_scenarios_are_made_by_their_seed)
{
	const struct kvb_scenario *s = &kvb_scenarios[_i];
	struct kvb_jobs a = {0};
	struct kvb_jobs b = {0};
	struct kvb_jobs c = {0};

	s->make(&a, 0.1, 8, 5);
	s->make(&b, 0.1, 8, 5);
	s->make(&c, 0.1, 8, 6);
	ck_assert_uint_gt(a.count, 0);
	ck_assert_uint_eq(a.count, b.count);
	for (size_t j = 0; j < a.count; j++) {
		ck_assert_int_eq(a.items[j].due_ns, b.items[j].due_ns);
		ck_assert_uint_eq(a.items[j].input, b.items[j].input);
		ck_assert_mem_eq(
			a.items[j].ids, b.items[j].ids, a.items[j].id_count * sizeof(uint64_t));
	}
	ck_assert(a.count != c.count || a.items[0].due_ns != c.items[0].due_ns);
	kvb_jobs_finish(&a);
	kvb_jobs_finish(&b);
	kvb_jobs_finish(&c);
}
END_TEST

START_TEST(test_programs_grow_to_their_limit)
{
	const uint32_t most = 150000;
	uint32_t longest = 0;
	int64_t shortest_ns = INT64_MAX;
	int64_t longest_ns = 0;

	kvb_scenario_find("programs")->make(&jobs, 1, 8, 1);
	for (uint32_t j = 0; j < jobs.count; j++) {
		const struct kvb_job *job = &jobs.items[j];

		ck_assert_uint_le(job->input, most);
		longest = job->input > longest ? job->input : longest;
		if (job->follows) {
			shortest_ns = job->due_ns < shortest_ns ? job->due_ns : shortest_ns;
			longest_ns = job->due_ns > longest_ns ? job->due_ns : longest_ns;
		}
		if (job->next != KVB_NO_JOB)
			ck_assert_uint_gt(
				kvb_job_shared(job, &jobs.items[job->next]), job->input - 512);
	}
	ck_assert_uint_gt(longest, most - 5000);
	ck_assert_int_ge(shortest_ns, 1000000000);
	ck_assert_int_le(longest_ns, 600000000000);
	ck_assert_int_gt(longest_ns, 120000000000);
	ck_assert(kvb_jobs_closed_loop(&jobs));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");
	int policies = 0;
	int scenarios = 0;

	while (kvb_policies[policies].name != NULL)
		policies++;
	while (kvb_scenarios[scenarios].name != NULL)
		scenarios++;
	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, test_lone_request_takes_what_the_profile_says);
	tcase_add_test(tcase, test_same_prompt_again_is_cached_but_for_its_last_block);
	tcase_add_test(tcase, test_each_request_is_reported_once_and_in_order);
	tcase_add_test(tcase, test_a_follower_comes_after_the_end_and_its_gap);
	tcase_add_test(tcase, test_requests_of_one_moment_may_be_apart);
	tcase_add_test(tcase, test_slow_and_stalled_worker);
	tcase_add_test(tcase, test_what_goes_past_the_router_is_not_counted);
	tcase_add_test(tcase, test_reset_caches_are_empty);
	tcase_add_test(tcase, test_events_report_what_the_router_cannot_know);
	tcase_add_loop_test(tcase, test_a_seed_decides_everything, 0, policies);
	tcase_add_loop_test(tcase, test_no_policy_beats_the_limit, 0, policies);
	tcase_add_test(tcase, test_the_limit_is_not_a_formality);
	tcase_add_loop_test(tcase, test_scenarios_are_made_by_their_seed, 0, scenarios);
	tcase_add_test(tcase, test_programs_grow_to_their_limit);
	return run_tcase("replay_run", tcase);
}
