/*
 * sim_watch_test.c - an engine's reports of its caches match what they hold.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_engine.h"
#include "tests/unit/suite.h"

#define BLOCK  4
#define NAMES  4096
#define SEQS   24
#define LOADED 1000 /* simulated ns to load a token */

static const struct kvb_profile profile = {.name = "test", .prefill_tps = 1e6, .base_ms = 1};

/* What a listener believes the device to hold: copies of each hash. */
struct listener {
	uint64_t hash[NAMES];
	int copies[NAMES];
	uint32_t names;
	uint32_t stored, removed, cleared;
	uint32_t findable;      /* tokens that the tier behind says it has */
	uint32_t loaded;        /* tokens, at the last load */
	uint32_t computed_most; /* tokens of a sequence, ever */
};

static int *copies_of(struct listener *l, uint64_t hash)
{
	uint32_t i = 0;

	while (i < l->names && l->hash[i] != hash)
		i++;
	ck_assert_uint_lt(i, NAMES);
	if (i == l->names) {
		l->hash[l->names] = hash;
		l->copies[l->names++] = 0;
	}
	return &l->copies[i];
}

static void on_stored(void *user, const struct kvb_seq *seq, uint32_t first, uint32_t count)
{
	struct listener *l = user;

	ck_assert_uint_gt(count, 0);
	ck_assert_uint_le((uint64_t)(first + count) * BLOCK, seq->total_len);
	if (first > 0) /* a listener that gets a block knows its parent */
		ck_assert_int_gt(*copies_of(l, kvb_seq_block(seq, first - 1)), 0);
	for (uint32_t i = first; i < first + count; i++)
		(*copies_of(l, kvb_seq_block(seq, i)))++;
	l->stored += count;
}

static void on_removed(void *user, uint64_t hash)
{
	struct listener *l = user;
	int *copies = copies_of(l, hash);

	ck_assert_int_gt(*copies, 0);
	(*copies)--;
	l->removed++;
}

static void on_cleared(void *user)
{
	struct listener *l = user;

	memset(l->copies, 0, sizeof(l->copies));
	l->cleared++;
}

static uint32_t on_find(void *user, struct kvb_seq *seq)
{
	(void)seq;
	return ((struct listener *)user)->findable;
}

static void on_load(void *user, struct kvb_seq *seq, uint32_t tokens)
{
	(void)seq;
	((struct listener *)user)->loaded = tokens;
}

static void on_computed(void *user, struct kvb_seq *seq)
{
	struct listener *l = user;

	if (seq->computed > l->computed_most)
		l->computed_most = seq->computed;
}

static const struct kvb_engine_watch watch = {.stored = on_stored,
	.removed = on_removed,
	.cleared = on_cleared,
	.find = on_find,
	.load = on_load,
	.computed = on_computed,
	.load_ns = LOADED};

static struct kvb_engine *make(struct listener *l, uint32_t blocks)
{
	struct kvb_engine_config config = {&profile, BLOCK, blocks, 64, 8, 0, 0, 0};
	struct kvb_engine *engine = kvb_engine_create(&config);

	ck_assert_ptr_nonnull(engine);
	memset(l, 0, sizeof(*l));
	kvb_engine_watch(engine, &watch, l);
	return engine;
}

static void on_token(void *user, struct kvb_seq *seq, uint32_t token, bool last)
{
	(void)user;
	(void)seq;
	(void)token;
	(void)last;
}

static int64_t run(struct kvb_engine *engine, int64_t now_ns)
{
	int64_t length_ns;

	while (kvb_engine_begin_step(engine, now_ns, &length_ns)) {
		now_ns += length_ns;
		kvb_engine_end_step(engine, on_token, NULL);
	}
	return now_ns;
}

/* A prompt of `len` tokens, of which the first `shared` are those of the theme. */
static struct kvb_seq *submit(
	struct kvb_engine *engine, uint32_t theme, uint32_t shared, uint32_t len, uint32_t max_new)
{
	uint32_t tokens[256];
	struct kvb_seq *seq;

	for (uint32_t i = 0; i < len; i++)
		tokens[i] = i < shared ? theme * 1000 + i : (uint32_t)rand() % 1000000;
	seq = kvb_seq_create(engine, tokens, len, max_new, 0, 0);
	ck_assert_ptr_nonnull(seq);
	kvb_engine_submit(engine, seq, 0);
	return seq;
}

static void same(const struct listener *l, const struct kvb_engine *engine)
{
	struct kvb_engine_stats stats;
	uint32_t copies = 0;

	for (uint32_t i = 0; i < l->names; i++) {
		ck_assert_int_eq(l->copies[i] > 0, kvb_engine_holds(engine, l->hash[i]));
		copies += (uint32_t)l->copies[i];
	}
	kvb_engine_stats(engine, &stats);
	ck_assert_uint_eq(copies, stats.blocks_published);
	ck_assert_uint_eq(l->removed, stats.evictions);
}

START_TEST(a_listener_knows_what_the_device_holds)
{
	struct listener l;
	struct kvb_engine *engine = make(&l, 60);

	srand((unsigned)_i + 1);
	for (int round = 0; round < 20; round++) {
		struct kvb_seq *seqs[SEQS];

		for (int i = 0; i < SEQS; i++)
			seqs[i] = submit(engine, (uint32_t)rand() % 4, (uint32_t)rand() % 40,
				1 + (uint32_t)rand() % 60, 1 + (uint32_t)rand() % 9);
		run(engine, 0);
		same(&l, engine);
		for (int i = 0; i < SEQS; i++)
			kvb_seq_destroy(seqs[i]);
		if (round % 7 == 6) {
			ck_assert(kvb_engine_reset_cache(engine));
			same(&l, engine);
		}
	}
	ck_assert_uint_eq(l.cleared, 2);
	ck_assert_uint_gt(l.removed, 100);
	kvb_engine_destroy(engine);
}
END_TEST

START_TEST(a_block_computed_again_is_reported_again)
{
	struct listener l;
	struct kvb_engine *engine = make(&l, 60);

	for (int i = 0; i < 3; i++) { /* exactly two blocks: the second is never hit */
		struct kvb_seq *seq = submit(engine, 1, 2 * BLOCK, 2 * BLOCK, 1);

		run(engine, 0);
		ck_assert_uint_eq(seq->cached_len, i == 0 ? 0 : BLOCK);
		kvb_seq_destroy(seq);
	}
	ck_assert_uint_eq(l.stored, 4);
	ck_assert_int_eq(*copies_of(&l, l.hash[0]), 1);
	ck_assert_int_eq(*copies_of(&l, l.hash[1]), 3);
	kvb_engine_destroy(engine);
}
END_TEST

START_TEST(a_refused_reset_reports_nothing)
{
	struct listener l;
	struct kvb_engine *engine = make(&l, 60);
	struct kvb_seq *seq = submit(engine, 1, 20, 20, 8);
	int64_t length_ns;

	ck_assert(kvb_engine_begin_step(engine, 0, &length_ns));
	ck_assert(!kvb_engine_reset_cache(engine));
	ck_assert_uint_eq(l.cleared, 0);
	kvb_engine_end_step(engine, on_token, NULL);
	run(engine, length_ns);
	kvb_seq_destroy(seq);
	kvb_engine_destroy(engine);
}
END_TEST

START_TEST(the_tier_behind_saves_computing_and_costs_loading)
{
	struct listener l;
	struct kvb_engine *engine = make(&l, 60);
	struct kvb_engine_stats stats;
	struct kvb_seq *seq = submit(engine, 1, 40, 40, 1);
	int64_t computed_ns = run(engine, 0), loaded_ns;

	kvb_seq_destroy(seq);
	ck_assert_uint_eq(l.computed_most, 40);
	ck_assert(kvb_engine_reset_cache(engine));
	l.findable = 30; /* not a multiple of a block */
	seq = submit(engine, 1, 40, 40, 1);
	loaded_ns = run(engine, 0);
	ck_assert_uint_eq(seq->cached_len, 30);
	ck_assert_uint_eq(l.loaded, 30);
	ck_assert_int_eq(loaded_ns, computed_ns - 30 * 1000 + 30 * LOADED);
	kvb_seq_destroy(seq);
	same(&l, engine); /* what was loaded is on the device too, and reported */
	kvb_engine_stats(engine, &stats);
	ck_assert_uint_eq(stats.loaded_tokens, 30);
	ck_assert_uint_eq(stats.cached_tokens, 30);
	kvb_engine_destroy(engine);
}
END_TEST

START_TEST(the_tier_behind_gives_what_the_device_lacks)
{
	struct listener l;
	struct kvb_engine *engine = make(&l, 60);
	struct kvb_seq *seq = submit(engine, 1, 16, 16, 1);
	struct kvb_engine_stats stats;

	run(engine, 0);
	kvb_seq_destroy(seq);
	l.findable = 12; /* less than the device has */
	seq = submit(engine, 1, 16, 40, 1);
	run(engine, 0);
	ck_assert_uint_eq(seq->cached_len, 16);
	kvb_seq_destroy(seq);
	l.findable = 400; /* all of it, but the last token is computed */
	seq = submit(engine, 1, 16, 40, 1);
	run(engine, 0);
	ck_assert_uint_eq(seq->cached_len, 39);
	kvb_seq_destroy(seq);
	kvb_engine_stats(engine, &stats);
	ck_assert_uint_eq(stats.loaded_tokens, 39 - 16);
	same(&l, engine);
	kvb_engine_destroy(engine);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("watch");

	tcase_add_loop_test(tests, a_listener_knows_what_the_device_holds, 0, 8);
	tcase_add_test(tests, a_block_computed_again_is_reported_again);
	tcase_add_test(tests, a_refused_reset_reports_nothing);
	tcase_add_test(tests, the_tier_behind_saves_computing_and_costs_loading);
	tcase_add_test(tests, the_tier_behind_gives_what_the_device_lacks);
	return run_tcase("sim_watch", tests);
}
