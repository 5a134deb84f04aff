/*
 * kvaware_fragments_test.c - texts that are no prefix, in the choice of kvaware: behind the hit, at their own cost, of
 * workers that blend; and nothing of it where that is off.
 */
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tests/unit/suite.h"

#define TEXTS  8
#define LENGTH 20u /* chunks of each text */

static struct kvw_strategy *strategy;
static struct fleet fleet;
static struct prompt prompt;
static struct kvw_route_request request;
static struct kvw_segment segments[TEXTS];
static struct kvw_cost costs[8];

static void make(size_t workers, bool on)
{
	struct kvw_strategy_options options = test_options();

	options.fragments = on;
	options.fragment_bytes = 1 << 20;
	options.fragment_held = 1 << 20;
	options.fragment_min_tokens = 16;
	options.fragment_ns_per_token = 1;
	options.fragment_share = 0.25;
	ck_assert_int_eq(kvw_strategy_find("kvaware")->create(&options, &strategy), KVW_OK);
	fleet_init(&fleet, workers);
	for (size_t i = 0; i < workers; i++)
		fleet.items[i].blends = true;
}

static void unmake(void)
{
	strategy->ops->destroy(strategy);
	fleet_finish(&fleet);
}

/* A prompt of these texts, by letter, and a tail of its own. */
static void ask(const char *letters, uint64_t tail)
{
	uint32_t count = 0, chunks = 0;

	prompt_start(&prompt);
	for (; *letters != '\0'; letters++, count++) {
		for (uint32_t i = 0; i < LENGTH; i++, chunks++)
			prompt_add(&prompt, 1000 + (uint64_t)*letters);
		segments[count] = (struct kvw_segment){(uint64_t)*letters * UINT64_C(0x9e3779b97f4a7c15),
			(chunks - LENGTH) * CHUNK_UNITS, chunks * CHUNK_UNITS};
	}
	prompt_add(&prompt, tail);
	request = request_of(&prompt);
	request.segments = segments;
	request.segment_count = count;
}

static struct kvw_decision explain(void)
{
	struct kvw_decision out = {0};

	EXPECT(strategy->ops->explain(strategy, &request, &fleet.set, 0, costs, &out) == KVW_OK);
	return out;
}

static struct kvw_decision pick(void)
{
	struct kvw_decision told = explain(), out = {0};

	EXPECT(strategy->ops->pick(strategy, &request, &fleet.set, 0, &out) == KVW_OK);
	ck_assert(same_decision(&told, &out));
	ck_assert_uint_eq(told.fragment_tokens, out.fragment_tokens);
	return out;
}

static uint32_t length_of_text(void)
{
	return (uint32_t)(LENGTH * CHUNK_UNITS * request.tokens_per_unit);
}

START_TEST(a_prompt_goes_where_its_texts_are)
{
	struct kvw_decision first, other;

	make(4, true);
	ask("ab", 1);
	first = pick();
	ck_assert_uint_eq(first.fragment_tokens, 0);
	ask("cd", 2);
	EXPECT(strategy->ops->pick(strategy, &request, &fleet.set, 0, &other) == KVW_OK);
	ask("xba", 3);
	other = pick();
	ck_assert_uint_eq(other.worker_id, first.worker_id);
	ck_assert_str_eq(kvw_reason_name(other.reason), "fragments");
	ck_assert_uint_eq(other.fragment_tokens, 2 * length_of_text());
	ck_assert_uint_eq(costs[first.worker_id].fragment_tokens, other.fragment_tokens);
	ck_assert_double_eq_tol((double)other.prefill_ns, costs[first.worker_id].prefill_ns, 2);
	unmake();
}
END_TEST

START_TEST(what_a_share_of_it_saves_is_what_the_cost_falls_by)
{
	double without, with;
	struct kvw_decision d;

	make(2, true);
	ask("ab", 1);
	d = pick();
	ask("xab", 3);
	d = explain();
	with = costs[d.worker_id].prefill_ns;
	request.segment_count = 0;
	explain();
	without = costs[d.worker_id].prefill_ns;
	/* two of three texts, a quarter of them computed again; attention counts the later ones for more */
	ck_assert_double_lt(with, without * 0.55);
	ck_assert_double_gt(with, without * 0.4);
	unmake();
}
END_TEST

START_TEST(the_prefix_comes_first_and_is_not_counted_twice)
{
	struct kvw_decision d;

	make(3, true);
	ask("abc", 1);
	pick();
	ask("acb", 2);
	d = pick();
	ck_assert_int_eq(d.reason, KVW_REASON_PREFIX);
	ck_assert_uint_gt(d.hit_tokens[KVW_TIER_DEVICE], 0);
	ck_assert_uint_eq(d.hit_tokens[KVW_TIER_DEVICE] + d.fragment_tokens, 3 * length_of_text());
	unmake();
}
END_TEST

START_TEST(workers_that_do_not_blend_have_no_fragments)
{
	struct kvw_decision d;

	make(1, true);
	ask("ab", 1);
	pick();
	fleet.items[0].blends = false;
	ask("xab", 2);
	ck_assert_uint_eq(pick().fragment_tokens, 0);
	unmake();
	make(1, false);
	ask("ab", 1);
	pick();
	ask("xab", 2);
	d = pick();
	ck_assert_uint_eq(d.fragment_tokens, 0);
	ck_assert_uint_eq(costs[0].fragment_tokens, 0);
	unmake();
}
END_TEST

START_TEST(what_takes_longer_to_load_is_not_counted)
{
	struct kvw_strategy_options options = test_options();

	make(1, true);
	ask("ab", 1);
	pick();
	options.fragment_min_tokens = 16;
	options.fragment_held = 1 << 20;
	options.fragment_ns_per_token = 1e9;
	strategy->ops->reconfigure(strategy, &options);
	ask("xab", 2);
	ck_assert_uint_eq(pick().fragment_tokens, 0);
	unmake();
}
END_TEST

START_TEST(a_lost_cache_and_a_lost_worker_hold_nothing)
{
	make(1, true);
	ask("ab", 1);
	pick();
	ask("xab", 2);
	ck_assert_uint_gt(explain().fragment_tokens, 0);
	strategy->ops->purge(strategy, 0);
	ck_assert_uint_eq(explain().fragment_tokens, 0);
	pick();
	ask("yab", 3);
	ck_assert_uint_gt(explain().fragment_tokens, 0);
	fleet.items[0].generation++;
	ck_assert_uint_eq(explain().fragment_tokens, 0);
	ck_assert_uint_eq(pick().fragment_tokens, 0);
	ask("zab", 4);
	ck_assert_uint_gt(pick().fragment_tokens, 0);
	unmake();
}
END_TEST

START_TEST(requests_that_teach_nothing_leave_nothing)
{
	make(1, true);
	ask("ab", 1);
	request.teaches = false;
	pick();
	ask("xab", 2);
	ck_assert_uint_eq(pick().fragment_tokens, 0);
	unmake();
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("kvaware fragments");

	tcase_add_test(tests, a_prompt_goes_where_its_texts_are);
	tcase_add_test(tests, what_a_share_of_it_saves_is_what_the_cost_falls_by);
	tcase_add_test(tests, the_prefix_comes_first_and_is_not_counted_twice);
	tcase_add_test(tests, workers_that_do_not_blend_have_no_fragments);
	tcase_add_test(tests, what_takes_longer_to_load_is_not_counted);
	tcase_add_test(tests, a_lost_cache_and_a_lost_worker_hold_nothing);
	tcase_add_test(tests, requests_that_teach_nothing_leave_nothing);
	return run_tcase("kvaware_fragments", tests);
}
