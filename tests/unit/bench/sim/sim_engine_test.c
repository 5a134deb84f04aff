/*
 * sim_engine_test.c - batching and timing in a virtual clock.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_clock.h"
#include "bench/sim/sim_engine.h"
#include "tests/unit/suite.h"

static const struct kvb_profile profile = {.name = "test",
	.prefill_tps = 20480,
	.attention_ns = 1.75,
	.base_ms = 12,
	.decode_ms = 0.5,
	.kv_tokens = 0,
	.max_model_len = 0};

#define SEQS 64

/* A virtual clock around an engine, and what came out of it. */
struct bench {
	struct kvb_engine *engine;
	int64_t now_ns;
	struct kvb_seq *seqs[SEQS];
	int64_t first_ns[SEQS], end_ns[SEQS]; /* by the sequence's number in user */
	uint32_t order[SEQS], order_count;    /* of first tokens */
	uint32_t tokens[SEQS];
	uint32_t ended;
	struct kvb_seq *victim; /* removed by the first token that comes out; NULL: none */
};

static struct bench b; /* of the test that runs; begun by begin() */

static void on_token(void *user, struct kvb_seq *seq, uint32_t token, bool last)
{
	size_t i = (size_t)seq->user;

	(void)user;
	(void)token;
	if (b.tokens[i]++ == 0) {
		b.first_ns[i] = b.now_ns;
		b.order[b.order_count++] = (uint32_t)i;
	}
	if (last) {
		b.end_ns[i] = b.now_ns;
		b.ended++;
	}
	if (b.victim != NULL) {
		kvb_engine_remove(b.engine, b.victim);
		b.seqs[(size_t)b.victim->user] = NULL;
		kvb_seq_destroy(b.victim);
		b.victim = NULL;
	}
}

static void begin(uint32_t block_size, uint32_t blocks, uint32_t budget, uint32_t max_seqs)
{
	struct kvb_engine_config config = {&profile, block_size, blocks, budget, max_seqs, 0, 0, 0};

	b = (struct bench){.engine = kvb_engine_create(&config)};
	ck_assert_ptr_nonnull(b.engine);
}

/* A prompt of `len` tokens that differ from those of other themes. */
static void fill(uint32_t *tokens, uint32_t len, uint32_t theme)
{
	for (uint32_t i = 0; i < len; i++)
		tokens[i] = theme * 1000003 + i;
}

static struct kvb_seq *submit(size_t i, uint32_t theme, uint32_t len, uint32_t max_new)
{
	uint32_t *tokens = malloc(len * sizeof(*tokens));

	fill(tokens, len, theme);
	b.seqs[i] = kvb_seq_create(b.engine, tokens, len, max_new, 0, 0);
	free(tokens);
	b.seqs[i]->user = (void *)i;
	kvb_engine_submit(b.engine, b.seqs[i], b.now_ns);
	return b.seqs[i];
}

static bool step(void)
{
	int64_t length_ns;

	if (!kvb_engine_begin_step(b.engine, b.now_ns, &length_ns))
		return false;
	b.now_ns += length_ns;
	kvb_engine_end_step(b.engine, on_token, NULL);
	return true;
}

static void run(void)
{
	for (int steps = 0; step(); steps++)
		ck_assert_int_lt(steps, 1000000);
}

/* Also called where a test begins again; without an engine it does nothing. */
static void finish(void)
{
	struct kvb_engine_stats stats;

	if (b.engine == NULL)
		return;
	for (size_t i = 0; i < SEQS; i++) {
		if (b.seqs[i] != NULL)
			kvb_engine_remove(b.engine, b.seqs[i]);
		kvb_seq_destroy(b.seqs[i]);
	}
	kvb_engine_stats(b.engine, &stats);
	ck_assert_uint_eq(stats.blocks_used, 0); /* whatever happened, every block came back */
	kvb_engine_destroy(b.engine);
	b.engine = NULL;
}

static struct kvb_engine_stats stats_of(void)
{
	struct kvb_engine_stats stats;

	kvb_engine_stats(b.engine, &stats);
	return stats;
}

START_TEST(first_token_takes_what_the_formula_says)
{
	double n = 4000;
	double expected = 12e6 + n / 20480 * 1e9 + 1.75 * n * n / 2;

	begin(16, 1024, 8192, 8);
	submit(0, 1, 4000, 2);
	run();
	ck_assert_double_le(fabs((double)b.first_ns[0] - expected), 1);
	/* then one decode: the token at position n */
	expected = 12e6 + 0.5e6 + 1.75 * ((n + 1) * (n + 1) - n * n) / 2;
	ck_assert_double_le(fabs((double)(b.end_ns[0] - b.first_ns[0]) - expected), 1);
}
END_TEST

START_TEST(a_long_prompt_goes_through_in_chunks_and_costs_no_less)
{
	double n = 20000;
	double expected = 3 * 12e6 + n / 20480 * 1e9 + 1.75 * n * n / 2;

	begin(16, 2048, 8192, 8);
	submit(0, 1, 20000, 1);
	run();
	ck_assert_uint_eq(stats_of().steps, 3);
	ck_assert_double_le(fabs((double)b.first_ns[0] - expected), 3);
}
END_TEST

START_TEST(drafts_shorten_steps_that_only_decode)
{
	struct kvb_engine_config config = {&profile, 16, 1024, 8192, 8, 3, 0.5, 0};
	int64_t first_ns, decode_ns;

	begin(16, 1024, 8192, 8);
	submit(0, 1, 4000, 2);
	run();
	first_ns = b.first_ns[0];
	decode_ns = b.end_ns[0] - first_ns;
	finish();
	b = (struct bench){.engine = kvb_engine_create(&config)};
	ck_assert_ptr_nonnull(b.engine);
	submit(0, 1, 4000, 2);
	run();
	ck_assert_int_eq(b.first_ns[0], first_ns);
	ck_assert_double_le(fabs((double)(b.end_ns[0] - b.first_ns[0]) - (double)decode_ns / 2.5), 2);
}
END_TEST

START_TEST(decodes_share_a_step_and_its_base)
{
	int64_t alone, together;

	begin(16, 1024, 8192, 8);
	submit(0, 1, 100, 50);
	run();
	alone = b.end_ns[0] - b.first_ns[0];
	submit(1, 2, 100, 50);
	submit(2, 3, 100, 50);
	run();
	together = b.end_ns[2] - b.first_ns[2];
	ck_assert_int_gt(together, alone);
	ck_assert_int_lt(together, 2 * alone);
	ck_assert_int_eq(b.end_ns[1], b.end_ns[2]);
}
END_TEST

START_TEST(a_prefill_slows_those_that_decode)
{
	int64_t before;

	begin(16, 2048, 8192, 8);
	submit(0, 1, 100, 100);
	step();
	before = b.now_ns;
	step();
	ck_assert_int_lt(b.now_ns - before, 13 * INT64_C(1000000));
	submit(1, 2, 8000, 1);
	before = b.now_ns;
	step(); /* the decode's token waits for the whole chunk */
	ck_assert_int_gt(b.now_ns - before, 400 * INT64_C(1000000));
}
END_TEST

/* The hit of an n-token prompt is at most (n - 1) / B * B. */
START_TEST(a_hit_leaves_the_last_token)
{
	begin(32, 64, 8192, 8);
	submit(0, 1, 64, 1);
	run();
	ck_assert_uint_eq(b.seqs[0]->cached_len, 0);
	submit(1, 1, 64, 1);
	run();
	ck_assert_uint_eq(b.seqs[1]->cached_len, 32);
	submit(2, 1, 65, 1);
	run();
	ck_assert_uint_eq(b.seqs[2]->cached_len, 64);
}
END_TEST

START_TEST(a_hit_shortens_the_first_token)
{
	double n = 4000, hit = 3984;
	double expected = 12e6 + (n - hit) / 20480 * 1e9 + 1.75 * (n * n - hit * hit) / 2;
	int64_t start;

	begin(16, 1024, 8192, 8);
	submit(0, 1, 4000, 1);
	run();
	start = b.now_ns;
	submit(1, 1, 4000, 1);
	run();
	ck_assert_uint_eq(b.seqs[1]->cached_len, 3984);
	ck_assert_double_le(fabs((double)(b.first_ns[1] - start) - expected), 1);
}
END_TEST

START_TEST(generated_tokens_are_hit_by_the_next_turn)
{
	uint32_t next[400];
	struct kvb_seq *first;

	begin(16, 256, 8192, 8);
	first = submit(0, 1, 100, 60);
	run();
	memcpy(next, first->tokens, 160 * sizeof(*next));
	fill(next + 160, 40, 9);
	b.seqs[1] = kvb_seq_create(b.engine, next, 200, 1, 0, 0);
	b.seqs[1]->user = (void *)1;
	kvb_engine_submit(b.engine, b.seqs[1], b.now_ns);
	run();
	/* 159 of the 160 were computed: the last token came out but was never put in */
	ck_assert_uint_eq(b.seqs[1]->cached_len, 144);
}
END_TEST

START_TEST(salt_separates_and_text_does_not_change)
{
	uint32_t tokens[100];

	begin(16, 256, 8192, 8);
	fill(tokens, 100, 1);
	for (size_t i = 0; i < 3; i++) {
		b.seqs[i] = kvb_seq_create(b.engine, tokens, 100, 20, i == 1 ? 77 : 0, i == 2);
		b.seqs[i]->user = (void *)i;
		kvb_engine_submit(b.engine, b.seqs[i], b.now_ns);
		run();
	}
	ck_assert_uint_eq(b.seqs[1]->cached_len, 0);
	ck_assert_uint_eq(b.seqs[2]->cached_len, 96);
	ck_assert_mem_eq(b.seqs[0]->tokens, b.seqs[1]->tokens, 120 * sizeof(uint32_t));
	/* another choice of the same prompt says something else */
	ck_assert_mem_ne(b.seqs[0]->tokens, b.seqs[2]->tokens, 120 * sizeof(uint32_t));
}
END_TEST

START_TEST(admission_is_in_the_order_of_arrival)
{
	begin(16, 4096, 2048, 4);
	for (size_t i = 0; i < 20; i++)
		submit(i, (uint32_t)i + 1, i % 3 == 0 ? 3000 : 50, 5);
	while (step())
		ck_assert_uint_le(stats_of().running, 4);
	ck_assert_uint_eq(b.ended, 20);
	for (uint32_t i = 1; i < 20; i++)
		ck_assert_int_ge(b.seqs[i]->admit_ns, b.seqs[i - 1]->admit_ns);
}
END_TEST

START_TEST(a_step_stays_within_its_token_budget)
{
	uint64_t before = 0;

	begin(16, 4096, 512, 64);
	for (size_t i = 0; i < 40; i++)
		submit(i, (uint32_t)i + 1, 100 + (uint32_t)i * 37, 10);
	while (step()) {
		struct kvb_engine_stats s = stats_of();

		ck_assert_uint_le(s.prefilled_tokens + s.decoded_tokens - before, 512);
		before = s.prefilled_tokens + s.decoded_tokens;
	}
	ck_assert_uint_eq(b.ended, 40);
}
END_TEST

START_TEST(twins_in_one_step_share_their_blocks)
{
	begin(16, 1024, 8192, 8);
	submit(0, 1, 1000, 1);
	submit(1, 1, 1000, 1);
	run();
	ck_assert_uint_eq(stats_of().steps, 1);
	ck_assert_uint_eq(b.seqs[1]->cached_len, 992);
}
END_TEST

/* Without preemption each prompt token is either found or computed, once. */
START_TEST(computed_and_cached_make_up_the_prompts)
{
	struct kvb_engine_stats s;
	uint64_t prompts = 0, generated = 0;

	begin(16, 4096, 1000, 16);
	srand(3);
	for (size_t i = 0; i < SEQS; i++) {
		uint32_t len = 1 + (uint32_t)rand() % 900, made = 1 + (uint32_t)rand() % 40;

		submit(i, (uint32_t)rand() % 8, len, made);
		prompts += len;
		generated += made;
		if (rand() % 2 == 0)
			step();
	}
	run();
	s = stats_of();
	ck_assert_uint_eq(s.preemptions, 0);
	ck_assert_uint_eq(s.prompt_tokens, prompts);
	ck_assert_uint_gt(s.cached_tokens, 0);
	ck_assert_uint_eq(s.prefilled_tokens + s.cached_tokens, prompts);
	ck_assert_uint_eq(s.generated_tokens, generated);
	/* every generated token but each sequence's last is computed as a decode */
	ck_assert_uint_eq(s.decoded_tokens, generated - SEQS);
	ck_assert_int_eq(b.now_ns, s.busy_ns);
}
END_TEST

START_TEST(a_full_cache_preempts_and_all_still_finish)
{
	uint32_t alone[600], len;

	begin(16, 33, 8192, 8); /* 512 usable tokens */
	submit(0, 1, 100, 300);
	run();
	len = b.seqs[0]->total_len;
	memcpy(alone, b.seqs[0]->tokens, len * sizeof(*alone));
	ck_assert(kvb_engine_reset_cache(b.engine));
	submit(1, 2, 100, 300);
	submit(2, 1, 100, 300);
	submit(3, 4, 100, 300);
	while (step())
		ck_assert_uint_le(stats_of().blocks_used, 32);
	ck_assert_uint_gt(stats_of().preemptions, 0);
	ck_assert_uint_eq(b.ended, 4);
	for (size_t i = 1; i <= 3; i++)
		ck_assert_uint_eq(b.tokens[i], 300);
	ck_assert_mem_eq(alone, b.seqs[2]->tokens, len * sizeof(*alone));
}
END_TEST

START_TEST(a_preempted_sequence_comes_back_before_later_ones)
{
	begin(16, 33, 8192, 2);
	submit(0, 1, 100, 300);
	submit(1, 2, 100, 300); /* is preempted when both have grown */
	submit(2, 3, 450, 5);   /* has no room with either */
	run();
	ck_assert_uint_gt(b.seqs[1]->preemptions, 0);
	ck_assert_int_ge(b.first_ns[2], b.end_ns[1]);
}
END_TEST

START_TEST(a_step_that_preempts_admits_none)
{
	struct kvb_engine_stats before = {0}, now;
	uint32_t preempting_steps = 0;

	begin(16, 33, 64, 8);
	for (size_t i = 0; i < 4; i++)
		submit(i, (uint32_t)i + 1, 60, 300);
	while (step()) {
		now = stats_of();
		if (now.preemptions > before.preemptions) {
			preempting_steps++;
			ck_assert_uint_eq(now.running,
				before.running - (now.preemptions - before.preemptions) -
					(now.finished - before.finished));
		}
		before = now;
	}
	ck_assert_uint_gt(preempting_steps, 0);
	ck_assert_uint_eq(b.ended, 4);
}
END_TEST

START_TEST(a_prompt_waits_while_the_cache_is_full)
{
	begin(16, 33, 8192, 8);
	submit(0, 1, 500, 12); /* 32 blocks: all there are */
	submit(1, 2, 100, 1);
	step();
	ck_assert_uint_eq(stats_of().running, 1);
	ck_assert_uint_eq(stats_of().waiting, 1);
	run();
	ck_assert_uint_eq(b.order[1], 1);
	ck_assert_int_ge(b.first_ns[1], b.end_ns[0]);
}
END_TEST

START_TEST(a_removed_sequence_frees_its_blocks_at_once)
{
	int64_t length_ns;

	begin(16, 1024, 8192, 8);
	submit(0, 1, 1000, 100);
	submit(1, 2, 1000, 100);
	ck_assert(kvb_engine_begin_step(b.engine, b.now_ns, &length_ns));
	ck_assert_uint_eq(stats_of().blocks_used, 126);
	kvb_engine_remove(b.engine, b.seqs[0]); /* its client left amid the step */
	ck_assert_uint_eq(stats_of().blocks_used, 63);
	kvb_seq_destroy(b.seqs[0]);
	b.seqs[0] = NULL;
	b.now_ns += length_ns;
	kvb_engine_end_step(b.engine, on_token, NULL);
	ck_assert_uint_eq(b.tokens[0], 0);
	ck_assert_uint_eq(b.tokens[1], 1);
}
END_TEST

START_TEST(a_token_may_remove_another_sequence_of_its_step)
{
	begin(16, 1024, 8192, 8);
	submit(0, 1, 100, 10);
	submit(1, 2, 100, 10);
	submit(2, 3, 100, 10);
	b.victim = b.seqs[1];
	run();
	ck_assert_uint_eq(b.tokens[0], 10);
	ck_assert_uint_eq(b.tokens[1], 0);
	ck_assert_uint_eq(b.tokens[2], 10);
}
END_TEST

START_TEST(cache_keeps_what_was_used_last)
{
	begin(16, 101, 8192, 8);         /* 1600 usable tokens */
	for (size_t i = 0; i < 4; i++) { /* 500 tokens each: the first has to go */
		submit(i, (uint32_t)i + 1, 500, 1);
		run();
	}
	submit(4, 4, 500, 1);
	run();
	ck_assert_uint_eq(b.seqs[4]->cached_len, 496);
	submit(5, 1, 500, 1);
	run();
	ck_assert_uint_lt(b.seqs[5]->cached_len, 496);
}
END_TEST

/*
 * The same arrivals in simulated time, driven by a real clock at some speed: what a worker does
 * with a timer. Returns the simulated times of first tokens.
 */
static void drive(double speed, int64_t first_ns[SEQS])
{
	struct kvb_sim_clock clock = {INT64_C(5000000000), speed};
	int64_t real_ns = clock.origin_ns;
	size_t arrived = 0;
	bool running = false;

	begin(16, 512, 2048, 8);
	while (arrived < 40 || running) {
		int64_t arrival = kvb_real_of_sim(&clock, (int64_t)arrived * 30000000);
		int64_t step_end = kvb_real_of_sim(&clock, b.now_ns);
		int64_t length_ns;

		if (arrived < 40 && (!running || arrival <= step_end)) {
			real_ns = arrival > real_ns ? arrival : real_ns;
			if (!running)
				b.now_ns = kvb_sim_of_real(&clock, real_ns);
			submit(arrived, (uint32_t)arrived % 5, 700 + (uint32_t)arrived * 11, 20);
			arrived++;
		} else {
			real_ns = step_end;
			kvb_engine_end_step(b.engine, on_token, NULL);
			running = false;
		}
		if (!running && kvb_engine_begin_step(b.engine, b.now_ns, &length_ns)) {
			running = true;
			b.now_ns += length_ns;
		}
	}
	memcpy(first_ns, b.first_ns, sizeof(b.first_ns));
	finish();
}

START_TEST(every_speed_gives_the_same_simulated_times)
{
	static const double speeds[] = {0.5, 3, 20, 1000};
	int64_t one[SEQS], other[SEQS];

	drive(1, one);
	for (size_t s = 0; s < sizeof(speeds) / sizeof(speeds[0]); s++) {
		drive(speeds[s], other);
		for (size_t i = 0; i < 40; i++) /* within a clock tick per step, at that speed */
			ck_assert_double_le(
				fabs((double)(one[i] - other[i])), 2000 * (speeds[s] + 1));
	}
}
END_TEST

int main(void)
{
	const TTest *const all[] = {
		first_token_takes_what_the_formula_says,
		a_long_prompt_goes_through_in_chunks_and_costs_no_less,
		drafts_shorten_steps_that_only_decode,
		decodes_share_a_step_and_its_base,
		a_prefill_slows_those_that_decode,
		a_hit_leaves_the_last_token,
		a_hit_shortens_the_first_token,
		generated_tokens_are_hit_by_the_next_turn,
		salt_separates_and_text_does_not_change,
		admission_is_in_the_order_of_arrival,
		a_step_stays_within_its_token_budget,
		twins_in_one_step_share_their_blocks,
		computed_and_cached_make_up_the_prompts,
		a_full_cache_preempts_and_all_still_finish,
		a_preempted_sequence_comes_back_before_later_ones,
		a_step_that_preempts_admits_none,
		a_prompt_waits_while_the_cache_is_full,
		a_removed_sequence_frees_its_blocks_at_once,
		a_token_may_remove_another_sequence_of_its_step,
		cache_keeps_what_was_used_last,
		every_speed_gives_the_same_simulated_times,
	};
	TCase *tests = tcase_create("engine");

	tcase_add_checked_fixture(tests, NULL, finish);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		tcase_add_test(tests, all[i]);
	return run_tcase("sim_engine", tests);
}
