/*
 * split_test.c - when another worker prefills: by seconds, by a threshold, and what is learned of transfers.
 */
#include <check.h>

#include "routing/split.h"
#include "tests/unit/suite.h"

#define MS 1e6

static struct kvw_candidate items[4];
static struct kvw_cost costs[4];
static struct kvw_transfer transfer;

/* Prefiller 0, decoders 1 and 2, and 3, which does both; a prompt of 10,000 tokens that takes a second. */
static void begin(void)
{
	static const uint8_t roles[] = {KVW_ROLE_PREFILL, KVW_ROLE_DECODE, KVW_ROLE_DECODE, KVW_ROLE_BOTH};

	for (uint32_t i = 0; i < 4; i++) {
		items[i] = (struct kvw_candidate){.id = i, .role = roles[i]};
		items[i].usable = roles[i] != KVW_ROLE_PREFILL;
		items[i].prefills = roles[i] == KVW_ROLE_PREFILL;
		costs[i] = (struct kvw_cost){.prefill_ns = 1000 * MS, .total_ns = 1000 * MS};
	}
	items[3].usable = false;
	kvw_transfer_init(&transfer);
}

static struct kvw_split choose(int64_t threshold, size_t only)
{
	struct kvw_candidates set = {.items = items, .count = 4};
	struct kvw_split out;

	kvw_split_choose(&set, costs, 10000, &transfer, threshold, only, &out);
	return out;
}

/* The prefill delays the streams of the worker, and costs a little by itself. */
static void load(size_t i, double others_ms, double context_ms)
{
	costs[i].others_ns += others_ms * MS;
	costs[i].context_ns += context_ms * MS;
	costs[i].total_ns += (others_ms + context_ms) * MS;
}

START_TEST(test_idle_workers_serve_whole_requests)
{
	struct kvw_split split;

	begin();
	split = choose(KVW_SPLIT_BY_SECONDS, KVW_SPLIT_ANY);
	ck_assert(!split.split && split.has_pair && split.has_here);
	ck_assert_double_eq(split.here_ns, 1000 * MS);
	ck_assert_double_eq_tol(split.split_ns, 1130 * MS, 1);
}
END_TEST

START_TEST(test_busy_decoders_are_spared)
{
	struct kvw_split split;

	begin();
	load(1, 500, 40);
	load(2, 500, 20);
	split = choose(KVW_SPLIT_BY_SECONDS, KVW_SPLIT_ANY);
	ck_assert(split.split);
	ck_assert_uint_eq(split.prefiller, 0);
	ck_assert_uint_eq(split.decoder, 2);
	split = choose(KVW_SPLIT_BY_SECONDS, 1);
	ck_assert(split.split);
	ck_assert_uint_eq(split.decoder, 1);
}
END_TEST

START_TEST(test_a_prefiller_with_a_queue_is_not_worth_it)
{
	begin();
	load(1, 500, 0);
	load(2, 500, 0);
	costs[0].queue_ns = 2000 * MS;
	costs[0].total_ns += 2000 * MS;
	ck_assert(!choose(KVW_SPLIT_BY_SECONDS, KVW_SPLIT_ANY).split);
}
END_TEST

START_TEST(test_a_decoders_queue_passes_while_another_prefills)
{
	begin();
	costs[1].queue_ns = costs[2].queue_ns = 900 * MS;
	costs[1].total_ns = costs[2].total_ns = 1900 * MS;
	ck_assert_double_eq_tol(choose(KVW_SPLIT_BY_SECONDS, KVW_SPLIT_ANY).split_ns, 1130 * MS, 1);
	costs[1].queue_ns = costs[2].queue_ns = 1500 * MS;
	ck_assert_double_eq_tol(choose(KVW_SPLIT_BY_SECONDS, KVW_SPLIT_ANY).split_ns, 1630 * MS, 1);
}
END_TEST

/* Answers are delayed on a prefiller only where some are decoded. */
START_TEST(test_a_prefiller_without_whole_requests_delays_none)
{
	begin();
	load(0, 400, 0);
	ck_assert_double_eq_tol(choose(KVW_SPLIT_BY_SECONDS, KVW_SPLIT_ANY).split_ns, 1130 * MS, 1);
	items[0].usable = true;
	ck_assert_double_eq_tol(choose(KVW_SPLIT_BY_SECONDS, KVW_SPLIT_ANY).split_ns, 1530 * MS, 1);
}
END_TEST

START_TEST(test_a_prefiller_has_whole_requests_where_it_may_and_decoders_cost_a_second_more)
{
	begin();
	load(1, 0, 1100);
	load(2, 0, 1100);
	ck_assert_uint_eq(choose(KVW_SPLIT_BY_SECONDS, KVW_SPLIT_ANY).here, 1);
	items[0].usable = true;
	ck_assert_uint_eq(choose(KVW_SPLIT_BY_SECONDS, KVW_SPLIT_ANY).here, 0);
	ck_assert(!choose(KVW_SPLIT_BY_SECONDS, KVW_SPLIT_ANY).split);
	load(1, 0, -200);
	ck_assert_uint_eq(choose(KVW_SPLIT_BY_SECONDS, KVW_SPLIT_ANY).here, 1);
	items[1].usable = items[2].usable = false;
	ck_assert(!choose(KVW_SPLIT_BY_SECONDS, KVW_SPLIT_ANY).has_here);
}
END_TEST

/* Each worker at the price of its best plan: whole, as the decoder of a pair, or whole and a second. */
START_TEST(test_prices_of_the_best_plans)
{
	struct kvw_candidates set = {.items = items, .count = 4};

	begin();
	items[0].usable = true;
	load(1, 500, 20);
	kvw_split_price(&set, costs, 10000, &transfer);
	ck_assert_double_eq_tol(costs[0].total_ns, 2000 * MS, 1);
	ck_assert_double_eq_tol(costs[1].total_ns, 1150 * MS, 1);
	ck_assert_double_eq_tol(costs[2].total_ns, 1000 * MS, 1);
	ck_assert_double_eq_tol(costs[3].total_ns, 1000 * MS, 1);
	begin();
	items[0].usable = true;
	items[0].prefills = false;
	load(1, 500, 20);
	kvw_split_price(&set, costs, 10000, &transfer);
	ck_assert_double_eq_tol(costs[1].total_ns, 1520 * MS, 1);
}
END_TEST

START_TEST(test_what_a_decoder_has_cached_stays_there)
{
	begin();
	load(1, 500, 0);
	costs[2].hit_tokens[KVW_TIER_DEVICE] = 9900;
	costs[2].prefill_ns = costs[2].total_ns = 10 * MS;
	ck_assert(!choose(KVW_SPLIT_BY_SECONDS, KVW_SPLIT_ANY).split);
	ck_assert_uint_eq(choose(KVW_SPLIT_BY_SECONDS, KVW_SPLIT_ANY).here, 2);
}
END_TEST

START_TEST(test_a_threshold_replaces_the_comparison)
{
	begin();
	ck_assert(choose(0, KVW_SPLIT_ANY).split);
	ck_assert(choose(10000, KVW_SPLIT_ANY).split);
	ck_assert(!choose(10001, KVW_SPLIT_ANY).split);
	costs[1].hit_tokens[KVW_TIER_DEVICE] = costs[2].hit_tokens[KVW_TIER_HOST] = 9000;
	ck_assert(choose(1000, KVW_SPLIT_ANY).split);
	ck_assert(!choose(1001, KVW_SPLIT_ANY).split);
}
END_TEST

START_TEST(test_without_prices_only_a_threshold_splits)
{
	begin();
	for (int i = 0; i < 4; i++)
		costs[i].total_ns = 0;
	costs[1].queue_ns = costs[2].queue_ns = 5000 * MS;
	ck_assert(!choose(KVW_SPLIT_BY_SECONDS, KVW_SPLIT_ANY).split);
	ck_assert(choose(0, KVW_SPLIT_ANY).split);
}
END_TEST

START_TEST(test_one_pool_alone)
{
	begin();
	items[0].prefills = false;
	ck_assert(!choose(0, KVW_SPLIT_ANY).has_pair && choose(0, KVW_SPLIT_ANY).has_here);
	begin();
	items[1].usable = items[2].usable = false;
	ck_assert(!choose(0, KVW_SPLIT_ANY).has_pair && !choose(0, KVW_SPLIT_ANY).split);
}
END_TEST

START_TEST(test_no_worker_prefills_for_itself)
{
	begin();
	items[0].prefills = false;
	items[1].usable = items[2].usable = false;
	items[3].usable = items[3].prefills = true;
	ck_assert(!choose(0, KVW_SPLIT_ANY).has_pair);
	items[1].usable = true;
	ck_assert_uint_eq(choose(0, KVW_SPLIT_ANY).prefiller, 3);
	ck_assert_uint_eq(choose(0, KVW_SPLIT_ANY).decoder, 1);
}
END_TEST

START_TEST(test_transfers_are_learned)
{
	kvw_transfer_init(&transfer);
	ck_assert_double_eq_tol(kvw_transfer_ns(&transfer, 10000), 130 * MS, 1);
	for (int i = 0; i < 400; i++)
		kvw_transfer_learn(&transfer, 1000 + 100 * (i % 90), (5 + 0.001 * (1000 + 100 * (i % 90))) * MS);
	ck_assert_double_eq_tol(kvw_transfer_ns(&transfer, 0), 5 * MS, 0.5 * MS);
	ck_assert_double_eq_tol(kvw_transfer_ns(&transfer, 8000), 13 * MS, 0.5 * MS);
	for (int i = 0; i < 400; i++) /* of one length: the slope stays, or a part of none is below 0 */
		kvw_transfer_learn(&transfer, 2000, 1 * MS);
	ck_assert_double_eq_tol(kvw_transfer_ns(&transfer, 2000), 1 * MS, 0.1 * MS);
	ck_assert_double_ge(kvw_transfer_ns(&transfer, 0), 0);
}
END_TEST

/* Every other one waits half a second for the decoder. */
START_TEST(test_waits_are_no_transfers)
{
	kvw_transfer_init(&transfer);
	for (int i = 0; i < 1000; i++)
		kvw_transfer_learn(&transfer, 2000, (i % 2 == 0 ? 50 : 550) * MS);
	ck_assert_double_lt(kvw_transfer_ns(&transfer, 2000), 200 * MS);
	for (int i = 0; i < 400; i++) /* a link that is slower now */
		kvw_transfer_learn(&transfer, 2000, 550 * MS);
	ck_assert_double_eq_tol(kvw_transfer_ns(&transfer, 2000), 550 * MS, 20 * MS);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("split");
	Suite *suite = suite_create("routing");

	tcase_add_test(tc, test_idle_workers_serve_whole_requests);
	tcase_add_test(tc, test_busy_decoders_are_spared);
	tcase_add_test(tc, test_a_prefiller_with_a_queue_is_not_worth_it);
	tcase_add_test(tc, test_a_decoders_queue_passes_while_another_prefills);
	tcase_add_test(tc, test_a_prefiller_without_whole_requests_delays_none);
	tcase_add_test(tc, test_a_prefiller_has_whole_requests_where_it_may_and_decoders_cost_a_second_more);
	tcase_add_test(tc, test_prices_of_the_best_plans);
	tcase_add_test(tc, test_what_a_decoder_has_cached_stays_there);
	tcase_add_test(tc, test_a_threshold_replaces_the_comparison);
	tcase_add_test(tc, test_without_prices_only_a_threshold_splits);
	tcase_add_test(tc, test_one_pool_alone);
	tcase_add_test(tc, test_no_worker_prefills_for_itself);
	tcase_add_test(tc, test_transfers_are_learned);
	tcase_add_test(tc, test_waits_are_no_transfers);
	suite_add_tcase(suite, tc);
	return run_suite(suite);
}
