/*
 * replay_pd_test.c - workers with roles: what the two legs of a request take, whose links transfers
 * share, what is lost with a lease and with wrong parameters, which rule splits what, and ranks whose
 * steps end together.
 */
#include <check.h>

#include "bench/replay/replay_pd.h"
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
	options.pd = (struct kvb_pd_options){.prefillers = 1,
		.decoders = 1,
		.rule = kvb_pd_rule_find("always"),
		.bytes_per_ns = 1,
		.fixed_ns = 30000000};
}

static void teardown(void)
{
	kvb_replay_result_finish(&r);
	kvb_jobs_finish(&jobs);
}

static void run(const char *policy)
{
	struct kvw_config *config = test_config();

	kvb_replay_result_finish(&r);
	r = kvb_replay_run(&options, &jobs, 1, kvb_policy_find(policy), NULL, config, 1);
	kvw_config_destroy(config);
}

static double prefill_s(double from, double to)
{
	const struct kvb_profile *p = options.profile;

	return (p->base_ms * 1e6 + (to - from) * 1e9 / p->prefill_tps +
		       p->attention_ns * (to * to - from * from) / 2) /
	       1e9;
}

static double transfer_s(double tokens)
{
	return 0.03 + tokens * options.profile->kv_bytes / options.pd.bytes_per_ns / 1e9;
}

/* Prefill, transfer of all but the last token, and a step that computes that one. */
START_TEST(test_a_request_of_two_legs_takes_both_and_the_transfer)
{
	static const char *const policies[] = {"kvway", "round_robin"};
	double first_s = prefill_s(0, 4000) + transfer_s(3999) + prefill_s(3999, 4000);

	test_add(&jobs, 1, 1, 0, 4000, 2);
	for (int i = 0; i < 2; i++) {
		run(policies[i]);
		ck_assert_double_eq_tol(r.ttft_mean, first_s, 1e-6);
		ck_assert_uint_eq(r.pd.split, 1);
		ck_assert_uint_eq(r.pd.pulled, 1);
		ck_assert_double_eq(r.pd.pulled_tokens, 3999);
		ck_assert_double_eq(r.share[1], 1);
		ck_assert_double_eq_tol(r.gap_p99, r.tpot_mean, 0.01 * r.tpot_mean);
	}
}
END_TEST

/* Once more: the prefiller has it cached, and the decoder lacks but the last block. */
START_TEST(test_what_the_decoder_has_is_not_transferred)
{
	test_add(&jobs, 1, 1, 8, 4096, 2);
	test_add(&jobs, 9, 1, 8, 4096, 2);
	run("round_robin");
	ck_assert_uint_eq(r.pd.pulled, 2);
	ck_assert_double_eq(r.pd.pulled_tokens, 4095 + 15);
	ck_assert_double_eq_tol(r.cached_share, 4080 / 8192.0, 1e-9);
}
END_TEST

/* Two prompts of one step: their bytes follow each other. */
START_TEST(test_transfers_share_a_link)
{
	double both_s;

	test_add(&jobs, 1, 1, 0, 4000, 1);
	test_add(&jobs, 1, 2, 0, 4000, 1);
	run("round_robin");
	both_s = r.ttft_mean;
	kvb_jobs_finish(&jobs);
	test_add(&jobs, 1, 1, 0, 4000, 1);
	test_add(&jobs, 21, 2, 0, 4000, 1);
	run("round_robin");
	ck_assert_double_gt(both_s, r.ttft_mean + 0.4 * transfer_s(3999));
}
END_TEST

/* The decoder's memory holds one of the two prompts: the other is not pulled before its end. */
START_TEST(test_a_decoder_without_room_pulls_later)
{
	test_add(&jobs, 1, 1, 0, 4000, 200);
	test_add(&jobs, 1, 2, 0, 4000, 200);
	run("round_robin");
	ck_assert_double_lt(r.ttft_p99, 3);
	options.kv_tokens = 6144;
	run("round_robin");
	ck_assert_double_gt(r.ttft_p99, 200 * 0.012);
	ck_assert_uint_eq(r.pd.pulled, 2);
	ck_assert_uint_eq(r.pd.expired, 0);
	options.pd.lease_ns = 1000000000; /* and then it is gone, and computed again */
	run("round_robin");
	ck_assert_uint_eq(r.pd.pulled, 1);
	ck_assert_uint_eq(r.pd.expired, 1);
}
END_TEST

START_TEST(test_wrong_parameters_are_computed_without_a_word)
{
	test_add(&jobs, 1, 1, 0, 4000, 2);
	options.pd.wrong_share = 1;
	run("kvway");
	ck_assert_uint_eq(r.pd.recomputed, 1);
	ck_assert_uint_eq(r.pd.pulled, 0);
	ck_assert_double_eq_tol(r.ttft_mean, 2 * prefill_s(0, 4000), 1e-6);
}
END_TEST

/* Prompts of 400, 3,000 and 9,000 tokens, and one of 9,000 of which the decoder has two thirds. */
START_TEST(test_rules_split_by_their_thresholds)
{
	static const struct {
		const char *rule;
		uint64_t split;
	} want[] = {{"always", 4}, {"llmd", 3}, {"hyperpod", 1}, {"dynamo", 3}};

	test_add(&jobs, 1, 1, 0, 400, 2);
	test_add(&jobs, 11, 2, 0, 3000, 2);
	test_add(&jobs, 21, 3, 12, 9000, 2);
	test_add(&jobs, 31, 3, 12, 9000, 2);
	for (size_t i = 0; i < sizeof(want) / sizeof(want[0]); i++) {
		options.pd.rule = kvb_pd_rule_find(want[i].rule);
		run("kvway");
		ck_assert_uint_eq(r.pd.split, want[i].split);
	}
	ck_assert_ptr_null(kvb_pd_rule_find("none"));
}
END_TEST

/* By seconds an idle decoder serves whole requests; one that decodes many answers gets only those. */
START_TEST(test_by_seconds_busy_decoders_are_spared)
{
	options.pd.rule = kvb_pd_rule_find("seconds");
	test_add(&jobs, 1, 1, 0, 9000, 2);
	run("kvway");
	ck_assert_uint_eq(r.pd.split, 0);
	kvb_jobs_finish(&jobs);
	for (uint32_t i = 0; i < 60; i++)
		test_add(&jobs, 1 + i, i, 0, i < 50 ? 30 : 9000, 6000);
	run("kvway");
	ck_assert_uint_ge(r.pd.split, 10);
	ck_assert_uint_le(r.pd.split, 12);
}
END_TEST

/* Loads of both sides are given back: nothing is left of what was booked. */
START_TEST(test_many_requests_end_once)
{
	options.workers = 4;
	options.pd.decoders = 2; /* and one that does both */
	options.pd.bytes_per_ns = 12.5;
	options.kv_tokens = 40000;
	for (int whole = 0; whole < 2; whole++)
		for (const struct kvb_pd_rule *rule = kvb_pd_rules; rule->name != NULL; rule++) {
			jobs = test_jobs(300, 12);
			options.pd.rule = rule;
			options.pd.whole = whole == 1;
			run("kvway");
			ck_assert_uint_eq(r.requests, 300);
			ck_assert_uint_le(r.pd.pulled, r.pd.split);
			ck_assert_double_gt(r.foretold, 0.7);
			kvb_jobs_finish(&jobs);
		}
}
END_TEST

/* A short prompt's step is as long as that of the long one on the server's other rank. */
START_TEST(test_ranks_end_their_steps_together)
{
	options.pd = (struct kvb_pd_options){0};
	test_add(&jobs, 1, 1, 0, 8000, 1);
	test_add(&jobs, 1, 2, 0, 100, 1);
	run("round_robin");
	ck_assert_double_eq_tol(r.ttft_mean, (prefill_s(0, 8000) + prefill_s(0, 100)) / 2, 1e-6);
	options.ranks = 2;
	run("round_robin");
	ck_assert_double_eq_tol(r.ttft_mean, prefill_s(0, 8000), 1e-6);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_set_timeout(tcase, 60);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, test_a_request_of_two_legs_takes_both_and_the_transfer);
	tcase_add_test(tcase, test_what_the_decoder_has_is_not_transferred);
	tcase_add_test(tcase, test_transfers_share_a_link);
	tcase_add_test(tcase, test_a_decoder_without_room_pulls_later);
	tcase_add_test(tcase, test_wrong_parameters_are_computed_without_a_word);
	tcase_add_test(tcase, test_rules_split_by_their_thresholds);
	tcase_add_test(tcase, test_by_seconds_busy_decoders_are_spared);
	tcase_add_test(tcase, test_many_requests_end_once);
	tcase_add_test(tcase, test_ranks_end_their_steps_together);
	return run_tcase("replay_pd", tcase);
}
