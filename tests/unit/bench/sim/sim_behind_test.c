/*
 * sim_behind_test.c - an engine over a tier that answers later: which requests wait, which pass,
 * and that every block and every question comes back exactly once.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_engine.h"
#include "tests/unit/suite.h"

#define BLOCK 4
#define SEQS  32

static const struct kvb_profile profile = {.name = "test", .prefill_tps = 1e6, .base_ms = 1};

/* One sequence as the tier sees it. */
struct asked {
	struct kvb_seq *seq;
	bool asked, answered; /* a question is open; it may be answered */
	bool fetching;
	uint32_t tokens; /* that are being fetched */
	bool finished;
};

struct tier {
	struct kvb_engine *engine;
	struct asked rows[SEQS];
	uint32_t count;
	uint32_t has;      /* tokens of any sequence */
	bool at_once;      /* answers come with the question */
	bool refuses;      /* to fetch */
	uint32_t open;     /* questions and fetches */
	uint32_t finished; /* sequences */
	uint32_t stored;   /* blocks reported */
};

static struct asked *row_of(struct tier *tier, const struct kvb_seq *seq)
{
	return &tier->rows[(size_t)seq->user];
}

static bool on_ask(void *user, struct kvb_seq *seq, int64_t now_ns, uint32_t hits, uint32_t *tokens)
{
	struct tier *tier = user;
	struct asked *row = row_of(tier, seq);

	(void)now_ns;
	ck_assert(!row->fetching);
	ck_assert_uint_lt(hits, seq->total_len);
	if (!row->asked) {
		row->asked = true;
		row->answered = tier->at_once;
		tier->open++;
	}
	if (!row->answered)
		return false;
	row->asked = row->answered = false;
	tier->open--;
	*tokens = tier->has;
	return true;
}

static bool on_fetch(
	void *user, struct kvb_seq *seq, int64_t now_ns, uint32_t hits, uint32_t tokens)
{
	struct tier *tier = user;
	struct asked *row = row_of(tier, seq);

	(void)now_ns;
	ck_assert(!row->fetching && !row->asked);
	ck_assert_uint_lt(hits, tokens);
	ck_assert_uint_lt(tokens, seq->total_len);
	if (tier->refuses)
		return false;
	row->fetching = true;
	row->tokens = tokens;
	tier->open++;
	return true;
}

static void on_drop(void *user, struct kvb_seq *seq)
{
	struct tier *tier = user;
	struct asked *row = row_of(tier, seq);

	tier->open -= (uint32_t)row->asked + (uint32_t)row->fetching;
	row->asked = row->answered = row->fetching = false;
}

static void on_stored(void *user, const struct kvb_seq *seq, uint32_t first, uint32_t count)
{
	ck_assert_uint_le((uint64_t)(first + count) * BLOCK, seq->computed);
	((struct tier *)user)->stored += count;
}

static const struct kvb_engine_watch watch = {
	.stored = on_stored, .ask = on_ask, .fetch = on_fetch, .drop = on_drop};

static void make(struct tier *tier, uint32_t blocks, uint32_t max_seqs)
{
	struct kvb_engine_config config = {&profile, BLOCK, blocks, 64, max_seqs, 0, 0, 0};

	memset(tier, 0, sizeof(*tier));
	tier->engine = kvb_engine_create(&config);
	ck_assert_ptr_nonnull(tier->engine);
	kvb_engine_watch(tier->engine, &watch, tier);
}

static struct kvb_seq *submit(struct tier *tier, uint32_t len, uint32_t max_new)
{
	uint32_t tokens[256], number = tier->count;
	struct kvb_seq *seq;

	ck_assert_uint_lt(number, SEQS);
	for (uint32_t i = 0; i < len; i++)
		tokens[i] = number * 1000 + i;
	seq = kvb_seq_create(tier->engine, tokens, len, max_new, 0, 0);
	ck_assert_ptr_nonnull(seq);
	seq->user = (void *)(size_t)number;
	tier->rows[tier->count++] = (struct asked){.seq = seq};
	kvb_engine_submit(tier->engine, seq, 0);
	return seq;
}

static void on_token(void *user, struct kvb_seq *seq, uint32_t token, bool last)
{
	struct tier *tier = user;

	(void)token;
	if (!last)
		return;
	row_of(tier, seq)->finished = true;
	tier->finished++;
}

static bool step(struct tier *tier)
{
	int64_t length_ns;

	if (!kvb_engine_begin_step(tier->engine, 0, &length_ns))
		return false;
	kvb_engine_end_step(tier->engine, on_token, tier);
	return true;
}

static void load(struct tier *tier, struct kvb_seq *seq, uint32_t tokens)
{
	struct asked *row = row_of(tier, seq);

	ck_assert(row->fetching);
	row->fetching = false;
	tier->open--;
	kvb_engine_loaded(tier->engine, seq, tokens);
}

static struct kvb_engine_stats stats_of(const struct tier *tier)
{
	struct kvb_engine_stats stats;

	kvb_engine_stats(tier->engine, &stats);
	return stats;
}

static void finish(struct tier *tier)
{
	ck_assert_uint_eq(stats_of(tier).blocks_used, 0);
	ck_assert_uint_eq(stats_of(tier).waiting, 0);
	ck_assert_uint_eq(stats_of(tier).deferred, 0);
	ck_assert_uint_eq(tier->open, 0);
	for (uint32_t i = 0; i < tier->count; i++)
		kvb_seq_destroy(tier->rows[i].seq);
	kvb_engine_destroy(tier->engine);
}

START_TEST(others_pass_one_that_asks_or_loads)
{
	struct tier tier;
	struct kvb_seq *slow, *quick;

	make(&tier, 64, 8);
	tier.has = 20;
	slow = submit(&tier, 40, 2);
	ck_assert(!step(&tier)); /* it asks */
	ck_assert_uint_eq(stats_of(&tier).deferred, 1);
	ck_assert_uint_eq(stats_of(&tier).blocks_used, 0);
	tier.at_once = true;
	tier.has = 0;
	quick = submit(&tier, 8, 1);
	ck_assert(step(&tier));
	ck_assert(row_of(&tier, quick)->finished);
	tier.has = 20;
	row_of(&tier, slow)->answered = true;
	ck_assert(!step(&tier)); /* it loads, and holds its blocks */
	ck_assert_uint_eq(stats_of(&tier).blocks_used, 20 / BLOCK);
	ck_assert_uint_eq(stats_of(&tier).deferred, 1);
	tier.has = 0;
	quick = submit(&tier, 8, 1);
	ck_assert(step(&tier));
	ck_assert(row_of(&tier, quick)->finished);
	load(&tier, slow, 20);
	ck_assert_uint_eq(stats_of(&tier).deferred, 0);
	while (step(&tier))
		;
	ck_assert(row_of(&tier, slow)->finished);
	ck_assert_uint_eq(slow->cached_len, 20);
	ck_assert_uint_eq(stats_of(&tier).prefilled_tokens, 8 + 8 + 20);
	finish(&tier);
}
END_TEST

START_TEST(what_did_not_come_is_computed)
{
	static const uint32_t came[] = {0, 3, 8, 20, 39, 40, 400};

	for (size_t i = 0; i < sizeof(came) / sizeof(came[0]); i++) {
		struct tier tier;
		struct kvb_seq *seq;
		uint32_t cached = came[i] < 39 ? came[i] : 39; /* the last token is computed */

		make(&tier, 64, 8);
		tier.at_once = true;
		tier.has = 400;
		seq = submit(&tier, 40, 1);
		ck_assert(!step(&tier));
		load(&tier, seq, came[i]);
		ck_assert(step(&tier));
		ck_assert_uint_eq(seq->cached_len, cached);
		ck_assert_uint_eq(stats_of(&tier).prefilled_tokens, 40 - cached);
		ck_assert_uint_eq(tier.stored, 40 / BLOCK); /* each block is reported once */
		finish(&tier);
	}
}
END_TEST

START_TEST(a_tier_that_cannot_fetch_costs_nothing)
{
	struct tier tier;
	struct kvb_seq *seq;

	make(&tier, 64, 8);
	tier.at_once = tier.refuses = true;
	tier.has = 30;
	seq = submit(&tier, 40, 1);
	ck_assert(step(&tier));
	ck_assert(row_of(&tier, seq)->finished);
	ck_assert_uint_eq(seq->cached_len, 0);
	finish(&tier);
}
END_TEST

START_TEST(the_device_comes_first)
{
	struct tier tier;
	struct kvb_seq *seq;

	make(&tier, 64, 8);
	tier.at_once = true;
	submit(&tier, 40, 1);
	while (step(&tier))
		;
	tier.count = 0; /* the same prompt again */
	tier.has = 36;
	kvb_seq_destroy(tier.rows[0].seq);
	seq = submit(&tier, 40, 1);
	ck_assert(step(&tier)); /* 36 tokens are on the device: nothing to load */
	ck_assert_uint_eq(seq->cached_len, 36);
	ck_assert_uint_eq(stats_of(&tier).loaded_tokens, 0);
	finish(&tier);
}
END_TEST

START_TEST(two_that_were_loaded_do_not_wait_for_each_other)
{
	struct tier tier;
	struct kvb_seq *one, *two;

	make(&tier, 21, 8); /* 20 usable blocks; each needs 16 in the end */
	tier.at_once = true;
	tier.has = 40;
	one = submit(&tier, 60, 4);
	two = submit(&tier, 60, 4);
	ck_assert(!step(&tier));
	ck_assert_uint_eq(stats_of(&tier).blocks_used, 20);
	load(&tier, one, 40);
	load(&tier, two, 40);
	for (int i = 0; i < 100 && tier.finished < 2; i++) {
		if (step(&tier))
			continue;
		for (uint32_t s = 0; s < tier.count; s++)
			if (tier.rows[s].fetching)
				load(&tier, tier.rows[s].seq, tier.rows[s].tokens);
	}
	ck_assert_uint_eq(tier.finished, 2);
	ck_assert_uint_gt(stats_of(&tier).preemptions, 0);
	finish(&tier);
}
END_TEST

START_TEST(the_last_that_runs_leaves_for_one_that_was_loaded)
{
	struct tier tier;
	struct kvb_seq *two;

	make(&tier, 21, 8); /* 20 usable blocks; each needs 12 in the end */
	tier.at_once = true;
	submit(&tier, 40, 8);
	ck_assert(step(&tier));
	tier.has = 36;
	two = submit(&tier, 44, 4);
	ck_assert(step(&tier));
	ck_assert_uint_eq(stats_of(&tier).blocks_used, 20);
	load(&tier, two, 36);
	tier.has = 0;
	for (int i = 0; i < 100 && tier.finished < 2; i++)
		ck_assert(step(&tier)); /* nothing else would wake the engine */
	ck_assert_uint_eq(tier.finished, 2);
	ck_assert_uint_eq(stats_of(&tier).preemptions, 1);
	finish(&tier);
}
END_TEST

START_TEST(one_that_leaves_gives_everything_back)
{
	struct tier tier;
	struct kvb_seq *asking, *loading, *loaded;

	make(&tier, 64, 1);
	asking = submit(&tier, 40, 1);
	step(&tier);
	tier.at_once = true;
	tier.has = 20;
	loading = submit(&tier, 40, 1);
	loaded = submit(&tier, 40, 1);
	ck_assert(!step(&tier));
	load(&tier, loaded, 20);
	kvb_engine_remove(tier.engine, asking);
	kvb_engine_remove(tier.engine, loading);
	kvb_engine_remove(tier.engine, loaded);
	kvb_engine_remove(tier.engine, loaded); /* twice is once */
	ck_assert(!step(&tier));
	finish(&tier);
}
END_TEST

/* Answers, loads and departures in any order, with too few blocks: all that stay are served. */
START_TEST(nothing_is_lost_or_held_whatever_the_order)
{
	struct tier tier;
	uint32_t gone = 0;

	srand((unsigned)_i + 1);
	make(&tier, 40, 5);
	for (uint32_t i = 0; i < SEQS; i++)
		submit(&tier, 1 + (uint32_t)rand() % 120, 1 + (uint32_t)rand() % 20);
	for (int turn = 0; turn < 20000 && tier.finished + gone < SEQS; turn++) {
		struct asked *row = &tier.rows[rand() % SEQS];

		tier.has = (uint32_t)rand() % 130;
		tier.at_once = rand() % 2;
		if (rand() % 3 == 0)
			row->answered = row->asked;
		if (row->fetching && rand() % 2)
			load(&tier, row->seq, rand() % 4 ? row->tokens : (uint32_t)rand() % 130);
		if (!row->finished && row->seq->state != 0 && rand() % 400 == 0) {
			kvb_engine_remove(tier.engine, row->seq);
			row->finished = true;
			gone++;
		}
		step(&tier);
	}
	ck_assert_uint_eq(tier.finished + gone, SEQS);
	finish(&tier);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("behind");

	tcase_add_test(tests, others_pass_one_that_asks_or_loads);
	tcase_add_test(tests, what_did_not_come_is_computed);
	tcase_add_test(tests, a_tier_that_cannot_fetch_costs_nothing);
	tcase_add_test(tests, the_device_comes_first);
	tcase_add_test(tests, two_that_were_loaded_do_not_wait_for_each_other);
	tcase_add_test(tests, the_last_that_runs_leaves_for_one_that_was_loaded);
	tcase_add_test(tests, one_that_leaves_gives_everything_back);
	tcase_add_loop_test(tests, nothing_is_lost_or_held_whatever_the_order, 0, 40);
	return run_tcase("sim_behind", tests);
}
