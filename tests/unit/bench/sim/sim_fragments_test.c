/*
 * sim_fragments_test.c - parts of prompts that are had from a store of fragments: how far a step comes
 * through them, what it costs, what is found again, and that nothing of it passes for exact.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_fragments.h"
#include "bench/sim/sim_link.h"
#include "bench/sim/sim_token.h"
#include "tests/unit/suite.h"

#define BLOCK 16

static uint64_t random_state = 1;

static uint32_t random_below(uint32_t n)
{
	random_state = random_state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)(random_state >> 33) % n;
}

/* Steps of any budget come to the end, cost what they say, and together what one step costs. */
START_TEST(steps_through_ranges_cost_what_they_take)
{
	for (int round = 0; round < 2000; round++) {
		struct kvb_range ranges[4];
		struct kvb_step_load whole = {0}, steps = {0};
		uint32_t count = 0, at = 0, from = random_below(20), end, taken = 0, n = 0;

		for (uint32_t i = random_below(5); i > 0; i--) {
			uint32_t first = at + random_below(30), last = first + 1 + random_below(60);

			ranges[count++] = (struct kvb_range){
				first, last, random_below(5) / 4.0, random_below(1000)};
			at = last;
		}
		end = (at > from ? at : from) + 1 + random_below(50);
		kvb_ranges_load(ranges, count, from, end, &whole);
		for (uint32_t i = from; i < end; n++) {
			uint32_t budget = 1 + random_below(40), cost;
			uint32_t take = kvb_ranges_take(ranges, count, i, end, budget, &cost);

			ck_assert_uint_ge(take, 1);
			ck_assert_uint_le(cost, budget);
			ck_assert_uint_le(take, end - i);
			if (i + take < end) /* the budget was used, but for part of a token */
				ck_assert_uint_eq(cost, budget);
			taken += kvb_ranges_load(ranges, count, i, i + take, &steps);
			i += take;
		}
		ck_assert_uint_eq(taken, kvb_ranges_load(ranges, count, from, end, &(struct kvb_step_load){0}));
		ck_assert_double_le(fabs(steps.pairs - whole.pairs), 1e-6 * (1 + whole.pairs));
		ck_assert_int_le(llabs(steps.load_ns - whole.load_ns), n + 1);
		ck_assert_int_le(llabs((long long)(steps.prefill_tokens - whole.prefill_tokens)), n + 1);
	}
}
END_TEST

/* --- an engine with a store --- */

static const struct kvb_profile profile = {.name = "test", .prefill_tps = 1e3, .base_ms = 1};
static const struct kvb_link memory = {.name = "m", .bytes_per_s = 1e9};
static const struct kvb_link disk = {.name = "d", .bytes_per_s = 1e8};

static struct kvb_engine *engine;
static struct kvb_fragments *fragments;
static struct kvb_fragments_options options;
static uint64_t salt;
static bool exact;

static void on_blend(void *user, struct kvb_seq *seq, uint32_t from)
{
	(void)user;
	kvb_fragments_blend(fragments, seq, salt, from, exact);
}

static void on_passed(void *user, struct kvb_seq *seq)
{
	(void)user;
	kvb_fragments_passed(fragments, seq);
}

static const struct kvb_engine_watch watch = {.blend = on_blend, .passed = on_passed};

static void setup(void)
{
	struct kvb_engine_config config = {.profile = &profile,
		.block_size = BLOCK,
		.block_count = 10000,
		.max_batched_tokens = 512,
		.max_seqs = 8};

	engine = kvb_engine_create(&config);
	kvb_fragments_init(&options);
	options.kv_bytes = 1000;
	options.memory = &memory;
	options.disk = &disk;
	options.rotate_bytes_per_s = 1e9;
	fragments = kvb_fragments_create(&options);
	ck_assert(engine != NULL && fragments != NULL);
	kvb_engine_watch(engine, &watch, NULL);
	salt = 0;
	exact = false;
}

static void teardown(void)
{
	kvb_engine_destroy(engine);
	kvb_fragments_destroy(fragments);
}

static void again(void)
{
	kvb_fragments_destroy(fragments);
	fragments = kvb_fragments_create(&options);
}

static void on_token(void *user, struct kvb_seq *seq, uint32_t token, bool last)
{
	(void)seq;
	(void)token;
	*(bool *)user |= last;
}

/* A prompt: each letter a document of 1,000 tokens, a separator behind each, and a question. */
static struct kvb_seq *prompt_of(const char *letters)
{
	struct kvb_tokens tokens = {0};
	struct kvb_seq *seq;

	for (const char *at = letters; *at != '\0'; at++) {
		for (uint32_t i = 0; i < 1000; i++)
			kvb_tokens_add(&tokens, (uint32_t)*at * 1000 + i);
		kvb_tokens_add(&tokens, KVB_TOKEN_SEPARATOR);
	}
	for (uint32_t i = 0; i < 50; i++)
		kvb_tokens_add(&tokens, 7 + i);
	seq = kvb_seq_create(engine, tokens.ids, (uint32_t)tokens.count, 20, salt, 0);
	kvb_tokens_free(&tokens);
	return seq;
}

/* Runs it alone. Returns the simulated time; the sequence is still there. */
static int64_t run(struct kvb_seq *seq)
{
	bool done = false;
	int64_t now_ns = 0, length_ns;

	kvb_engine_submit(engine, seq, 0);
	while (!done) {
		ck_assert(kvb_engine_begin_step(engine, now_ns, &length_ns));
		now_ns += length_ns;
		kvb_engine_end_step(engine, on_token, &done);
	}
	return now_ns;
}

/* Tokens that a prompt took from fragments. */
static uint32_t reused(const char *letters)
{
	struct kvb_seq *seq = prompt_of(letters);
	uint32_t blended;

	run(seq);
	blended = seq->blended_len;
	kvb_seq_destroy(seq);
	return blended;
}

START_TEST(documents_in_another_order_are_reused_and_cost_less)
{
	struct kvb_seq *first = prompt_of("abc"), *other;
	int64_t computed_ns = run(first), blended_ns;

	ck_assert_uint_eq(first->blended_len, 0);
	other = prompt_of("cab");
	blended_ns = run(other);
	ck_assert_uint_eq(other->blended_len, 3000);
	ck_assert_uint_eq(other->cached_len, 3000);
	/* 3,000 tokens are loaded and moved, not computed: 1.5 us and 1 ms each, in one step and not in six. */
	ck_assert_int_le(llabs(computed_ns - blended_ns - (INT64_C(3000) * (1000000 - 1500) + 5 * 1000000)), 2);
	kvb_seq_destroy(first);
	kvb_seq_destroy(other);
}
END_TEST

START_TEST(a_share_is_computed_again)
{
	struct kvb_engine_stats before, after;
	struct kvb_seq *seq;

	options.share = 0.25;
	options.first_layers = 0.5;
	again();
	reused("ab");
	kvb_engine_stats(engine, &before);
	seq = prompt_of("ba");
	run(seq);
	kvb_engine_stats(engine, &after);
	/* 0.25 of the tokens on all layers and 0.75 on half of them; separators and question whole. */
	ck_assert_uint_ge(after.prefilled_tokens - before.prefilled_tokens, 2000 * 5 / 8 + 52);
	ck_assert_uint_le(after.prefilled_tokens - before.prefilled_tokens, 2000 * 5 / 8 + 55);
	kvb_seq_destroy(seq);
}
END_TEST

START_TEST(the_exact_prefix_comes_first)
{
	struct kvb_seq *seq;

	reused("abc");
	seq = prompt_of("acb");
	run(seq);
	/* The first document is a prefix up to its last whole block. */
	ck_assert_uint_eq(seq->cached_len, 3000);
	ck_assert_uint_eq(seq->blended_len, 3000 - 1001 / BLOCK * BLOCK);
	kvb_seq_destroy(seq);
}
END_TEST

START_TEST(nothing_behind_a_fragment_passes_for_exact)
{
	struct kvb_seq *seq, *same;

	reused("ab");
	seq = prompt_of("xab");
	run(seq);
	ck_assert_uint_eq(seq->blended_len, 2000);
	for (uint32_t i = 0; i < seq->hash_count; i++)
		ck_assert_int_eq(kvb_engine_holds(engine, kvb_seq_block(seq, i)),
			(i + 1) * BLOCK <= 1001);
	exact = true;
	same = prompt_of("xab");
	run(same);
	ck_assert_uint_eq(same->blended_len, 0);
	ck_assert_uint_eq(same->cached_len, 1001 / BLOCK * BLOCK);
	for (uint32_t i = 0; i < same->hash_count; i++)
		ck_assert(kvb_engine_holds(engine, kvb_seq_block(same, i)));
	kvb_seq_destroy(seq);
	kvb_seq_destroy(same);
}
END_TEST

START_TEST(tenants_are_apart)
{
	reused("ab");
	salt = 9;
	ck_assert_uint_eq(reused("ba"), 0);
	ck_assert_uint_eq(reused("xab"), 2000);
	salt = 0;
	ck_assert_uint_eq(reused("ba"), 2000);
}
END_TEST

START_TEST(short_segments_are_computed)
{
	options.min_tokens = 1001;
	again();
	reused("ab");
	ck_assert_uint_eq(reused("ba"), 0);
}
END_TEST

START_TEST(what_was_not_used_longest_leaves_first)
{
	struct kvb_fragments_stats stats;

	options.memory_tokens = 2 * 1024; /* two documents of four units each */
	again();
	reused("ab");
	ck_assert_uint_eq(reused("xa"), 1000); /* x pushes b out, not a, which was used after it */
	ck_assert_uint_eq(reused("yab"), 1000);
	kvb_fragments_stats(fragments, &stats);
	ck_assert_uint_le(stats.memory_units, 8);
}
END_TEST

START_TEST(a_disk_outlives_a_restart_and_costs_more)
{
	struct kvb_seq *one, *two;
	int64_t slow_ns, fast_ns;

	options.disk_tokens = 100000;
	again();
	reused("ab");
	kvb_fragments_restart(fragments);
	one = prompt_of("ba");
	slow_ns = run(one);
	two = prompt_of("xba"); /* they are in memory again; x is computed */
	fast_ns = run(two);
	ck_assert_uint_eq(one->blended_len, 2000);
	ck_assert_uint_eq(two->blended_len, 2000);
	/* 2,000 tokens from the disk at 10 us; x takes 1,001 ms and two more steps. */
	ck_assert_int_le(llabs(slow_ns - fast_ns - (2000 * 10000 - 1001000000 - 2 * 1000000)), 2);
	kvb_seq_destroy(one);
	kvb_seq_destroy(two);
}
END_TEST

START_TEST(separators_are_one_token_and_a_cut)
{
	struct kvb_tokens one = {.separator = " # # "}, two = {0};

	kvb_tokens_text(&one, "abcdef # # ghijk # # ", 21);
	ck_assert_uint_eq(one.count, 2 + 1 + 2 + 1);
	ck_assert_uint_eq(one.ids[2], KVB_TOKEN_SEPARATOR);
	ck_assert_uint_eq(one.ids[5], KVB_TOKEN_SEPARATOR);
	kvb_tokens_text(&two, "ghijk", 5);
	ck_assert_mem_eq(one.ids + 3, two.ids, 2 * sizeof(*two.ids));
	kvb_tokens_free(&one);
	kvb_tokens_free(&two);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("ranges"), *store = tcase_create("store");
	Suite *suite = suite_create("sim_fragments");

	tcase_add_test(tests, steps_through_ranges_cost_what_they_take);
	tcase_add_test(tests, separators_are_one_token_and_a_cut);
	tcase_add_checked_fixture(store, setup, teardown);
	tcase_add_test(store, documents_in_another_order_are_reused_and_cost_less);
	tcase_add_test(store, a_share_is_computed_again);
	tcase_add_test(store, the_exact_prefix_comes_first);
	tcase_add_test(store, nothing_behind_a_fragment_passes_for_exact);
	tcase_add_test(store, tenants_are_apart);
	tcase_add_test(store, short_segments_are_computed);
	tcase_add_test(store, what_was_not_used_longest_leaves_first);
	tcase_add_test(store, a_disk_outlives_a_restart_and_costs_more);
	suite_add_tcase(suite, tests);
	suite_add_tcase(suite, store);
	return run_suite(suite);
}
