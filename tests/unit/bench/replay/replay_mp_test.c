/*
 * replay_mp_test.c - LMCache servers behind the engines: what comes from L2 and from L1, how long it
 * takes, and what a load ahead of time saves.
 */
#include <check.h>

#include "bench/replay/replay_run.h"
#include "replay_support.h"
#include "tests/unit/suite.h"

static struct kvb_jobs jobs;
static struct kvb_fleet_options options;
static struct kvb_replay_result r;

static void setup(void)
{
	jobs = (struct kvb_jobs){0};
	r = (struct kvb_replay_result){0};
	options = test_fleet_options(2);
	options.mp = (struct kvb_mp_options){.l1_tokens = 100000,
		.l2_tokens = 1000000,
		.l1_bytes_per_ns = 20,
		.l2_bytes_per_ns = 2,
		.l2_fixed_ns = 5000000};
}

static void teardown(void)
{
	kvb_replay_result_finish(&r);
	kvb_jobs_finish(&jobs);
}

static void run(void)
{
	struct kvw_config *config = test_config();

	kvb_replay_result_finish(&r);
	r = kvb_replay_run(&options, &jobs, 1, kvb_policy_find("round_robin"), NULL, config, 1);
	kvw_config_destroy(config);
}

/* The second one comes to the other worker, whose server gets its chunks from L2. */
START_TEST(test_what_another_server_stored_comes_from_l2)
{
	test_add(&jobs, 1, 1, 8, 4096, 1);
	test_add(&jobs, 9, 1, 8, 4096, 1);
	run();
	ck_assert_double_eq(r.mp.l2_tokens, 4096);
	ck_assert_double_eq(r.mp.l1_tokens, 4095);
	ck_assert_uint_eq(r.mp.asked, 1);
	ck_assert_uint_eq(r.mp.prefetches, 0);
	ck_assert_double_eq_tol(r.cached_share, 4095 / 8192.0, 1e-9);
}
END_TEST

/* The other worker has memory for one prompt: the last one waits behind another one that waits, and
 * meanwhile its chunks come, if they are asked for. */
START_TEST(test_a_load_ahead_of_time_ends_while_the_request_waits)
{
	double waited_s;

	options.kv_tokens = 8192;
	test_add(&jobs, 1, 1, 8, 4096, 1);
	test_add(&jobs, 9, 2, 0, 8000, 100);
	test_add(&jobs, 9, 3, 0, 64, 1);
	test_add(&jobs, 9, 4, 0, 1000, 1);
	test_add(&jobs, 9, 5, 0, 64, 1);
	test_add(&jobs, 9, 1, 8, 4096, 1);
	run();
	waited_s = r.e2e_mean;
	options.mp.prefetch = true;
	run();
	ck_assert_uint_ge(r.mp.prefetches, 1);
	ck_assert_double_eq(r.mp.prefetched_tokens, r.mp.l2_tokens);
	ck_assert_uint_eq(r.mp.asked, 0);
	ck_assert_double_lt(r.e2e_mean, waited_s);
}
END_TEST

/* L1 of one chunk: what was lost again is computed, and nothing waits for ever. */
START_TEST(test_a_memory_that_is_too_small_ends_no_run)
{
	options.mp.l1_tokens = KVB_MP_CHUNK;
	test_add(&jobs, 1, 1, 8, 4096, 1);
	test_add(&jobs, 9, 1, 8, 4096, 1);
	run();
	ck_assert_uint_eq(r.requests, 2);
	ck_assert_double_eq(r.goodput, 1);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("replay_mp");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, test_what_another_server_stored_comes_from_l2);
	tcase_add_test(tcase, test_a_load_ahead_of_time_ends_while_the_request_waits);
	tcase_add_test(tcase, test_a_memory_that_is_too_small_ends_no_run);
	return run_tcase("replay_mp", tcase);
}
