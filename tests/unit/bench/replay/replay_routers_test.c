/*
 * replay_routers_test.c - several routers before the same workers: every request is answered once, and what the
 * routers say to each other brings them near to one.
 */
#include <check.h>
#include <stdlib.h>

#include "bench/replay/replay_routers.h"
#include "bench/replay/replay_run.h"
#include "replay_support.h"
#include "tests/unit/suite.h"

#define MS INT64_C(1000000)

static const struct kvb_policy several = {"routers", &kvb_routers_ops, false, 0, ""};
static const struct kvb_admission gates = {"routers", &kvb_admission_routers_ops, false, 0, ""};
static struct kvb_routers routers;
static struct kvb_jobs jobs;
static struct kvw_config *config;

static void setup(void)
{
	routers = (struct kvb_routers){.count = 4,
		.shared = true,
		.interval_ns = 100 * MS,
		.life_ns = 2000 * MS,
		.delay_ns = 2 * MS,
		.lost_ns = INT64_MAX,
		.policy = kvb_policy_find("kvway")};
	config = test_config();
}

static void teardown(void)
{
	kvb_jobs_finish(&jobs);
	kvw_config_destroy(config);
}

/* Requests with nothing in common, so that routers differ by what they know of loads alone. */
static void make_jobs(uint32_t count, double per_s)
{
	uint64_t random = 5;

	jobs = (struct kvb_jobs){0};
	for (uint32_t i = 0; i < count; i++)
		test_add(&jobs, i / per_s, 0, 0, 2000 + (uint32_t)(kvb_random(&random) * 20000), 20);
}

static double ttft(bool admission)
{
	struct kvb_fleet_options options = test_fleet_options(8);
	struct kvb_replay_result r;
	double mean;

	options.routers = &routers;
	routers.admission = admission ? kvb_admission_find("kvway") : NULL;
	r = kvb_replay_run(&options, &jobs, 1, &several, admission ? &gates : NULL, config, 1);
	ck_assert_uint_eq(r.requests, jobs.count);
	mean = r.ttft_mean;
	kvb_replay_result_finish(&r);
	return mean;
}

START_TEST(test_shared_load_is_worth_something)
{
	double one, four, alone;

	make_jobs(600, 10);
	four = ttft(false);
	routers.shared = false;
	alone = ttft(false);
	routers.count = 1;
	one = ttft(false);
	ck_assert_double_lt(four, alone);
	ck_assert_double_lt(four - one, (alone - one) / 2);
}
END_TEST

START_TEST(test_a_lost_redis_is_as_good_as_none)
{
	double lost, alone;

	make_jobs(300, 10);
	routers.lost_ns = 0;
	lost = ttft(false);
	routers.shared = false;
	alone = ttft(false);
	ck_assert_double_eq(lost, alone);
}
END_TEST

START_TEST(test_every_gate_answers_and_a_liar_stops_none)
{
	make_jobs(300, 10);
	(void)ttft(true);
	routers.odd = KVB_PEER_LYING;
	ck_assert_double_gt(ttft(true), 0);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("routers");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, test_shared_load_is_worth_something);
	tcase_add_test(tcase, test_a_lost_redis_is_as_good_as_none);
	tcase_add_test(tcase, test_every_gate_answers_and_a_liar_stops_none);
	tcase_set_timeout(tcase, 120);
	return run_tcase("routers", tcase);
}
