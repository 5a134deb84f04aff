/*
 * radix_test.c - the prefix tree against what a reader of radix.h would expect, against a naive
 * model under random use, and at its limits.
 */
#include <stdlib.h>
#include <string.h>

#include "routing/radix_node.h"
#include "support.h"
#include "tests/unit/steps.h"
#include "tests/unit/suite.h"

#define UNLIMITED UINT64_C(1000000000)
#define MS        INT64_C(1000000)

static struct kvw_radix *tree;

static void create(uint64_t bytes, unsigned slack_shift)
{
	struct kvw_radix_options options = {.bytes = bytes, .seed = 99, .slack_shift = slack_shift};

	ck_assert_int_eq(kvw_radix_create(&options, &tree), KVW_OK);
}

/* The tree of most tests has the default limit. */
static void setup(void)
{
	create(0, 32);
}

/* Whatever a test did, its tree must be sound. */
static void teardown(void)
{
	tree_check(tree);
	kvw_radix_destroy(tree);
}

static void create_again(uint64_t bytes, unsigned slack_shift)
{
	kvw_radix_destroy(tree);
	create(bytes, slack_shift);
}

START_TEST(empty_tree_knows_nothing)
{
	struct prompt p;

	prompt_of(&p, "abc");
	ck_assert_uint_eq(tree_reach(tree, &p, 0), 0);
	prompt_of(&p, "");
	ck_assert_uint_eq(tree_reach(tree, &p, 0), 0);
	tree_insert(tree, &p, 0, UNLIMITED, 0);
	kvw_radix_destroy(NULL);
}
END_TEST

START_TEST(longest_prefix_of_each_worker)
{
	struct prompt p;

	prompt_of(&p, "abcdefghijklmnopqrstuvwxyz");
	tree_insert(tree, &p, 3, UNLIMITED, 0);
	prompt_of(&p, "abcdefgh");
	tree_insert(tree, &p, 5, UNLIMITED, 0);
	prompt_of(&p, "abcdeXYZ");
	tree_insert(tree, &p, 7, UNLIMITED, 0);
	prompt_of(&p, "abcdefghijklmnopqrs!");
	ck_assert_uint_eq(tree_reach(tree, &p, 3), 19);
	ck_assert_uint_eq(tree_reach(tree, &p, 5), 8);
	ck_assert_uint_eq(tree_reach(tree, &p, 7), 5);
	ck_assert_uint_eq(tree_reach(tree, &p, 0), 0);
	prompt_of(&p, "abcdeXYZ+more");
	ck_assert_uint_eq(tree_reach(tree, &p, 3), 5);
	ck_assert_uint_eq(tree_reach(tree, &p, 5), 5);
	ck_assert_uint_eq(tree_reach(tree, &p, 7), 8);
	prompt_of(&p, "bcdef");
	ck_assert_uint_eq(tree_reach(tree, &p, 3), 0);
}
END_TEST

/* A prompt that grows by a turn at a time costs a node per run of new chunks. */
START_TEST(growing_conversation_is_stored_once)
{
	struct kvw_strategy_stats stats = {0};
	struct prompt p;

	prompt_start(&p);
	for (unsigned turn = 0; turn < 20; turn++) {
		for (unsigned i = 0; i < 20; i++)
			prompt_add(&p, turn * 100 + i);
		tree_insert(tree, &p, turn % 2, UNLIMITED, 0);
		ck_assert_uint_eq(tree_reach(tree, &p, turn % 2), p.count);
		ck_assert_uint_eq(
			tree_reach(tree, &p, (turn + 1) % 2), turn == 0 ? 0 : p.count - 20);
	}
	kvw_radix_stats(tree, &stats);
	ck_assert_uint_eq(stats.chunks, 400);
	ck_assert_uint_eq(stats.nodes, 20 * ((20 + KVW_RADIX_RUN - 1) / KVW_RADIX_RUN));
	ck_assert_uint_eq(kvw_radix_view_tokens(tree, 0), 380 * CHUNK_UNITS);
	ck_assert_uint_eq(kvw_radix_view_tokens(tree, 1), 400 * CHUNK_UNITS);
}
END_TEST

START_TEST(a_thousand_workers_hold_one_prompt)
{
	struct prompt p;

	for (uint32_t w = 0; w < KVW_MAX_WORKERS; w++) {
		prompt_start(&p);
		for (uint32_t i = 0; i < 40 - w % 30; i++)
			prompt_add(&p, i);
		tree_insert(tree, &p, w, UNLIMITED, 0);
	}
	prompt_start(&p);
	for (uint32_t i = 0; i < 40; i++)
		prompt_add(&p, i);
	for (uint32_t w = 0; w < KVW_MAX_WORKERS; w++)
		ck_assert_uint_eq(tree_reach(tree, &p, w), 40 - w % 30);
}
END_TEST

START_TEST(purge_forgets_one_worker_only)
{
	struct kvw_strategy_stats stats = {0};
	struct prompt p;

	prompt_of(&p, "a prompt of some length that two workers hold");
	tree_insert(tree, &p, 1, UNLIMITED, 0);
	tree_insert(tree, &p, 2, UNLIMITED, 0);
	kvw_radix_purge(tree, 1);
	kvw_radix_purge(tree, 9); /* never used */
	ck_assert_uint_eq(tree_reach(tree, &p, 1), 0);
	ck_assert_uint_eq(tree_reach(tree, &p, 2), p.count);
	ck_assert_uint_eq(kvw_radix_view_tokens(tree, 1), 0);
	tree_check(tree);
	tree_insert(tree, &p, 1, UNLIMITED, 0);
	ck_assert_uint_eq(tree_reach(tree, &p, 1), p.count);
	ck_assert_uint_eq(kvw_radix_view_tokens(tree, 1), p.count * CHUNK_UNITS);
	kvw_radix_stats(tree, &stats);
	ck_assert_uint_eq(stats.purges, 2);
}
END_TEST

/* What a purged worker held alone is given back although no insert needs memory. */
START_TEST(purged_branches_are_reclaimed)
{
	struct kvw_strategy_stats stats = {0};
	uint64_t dice = 1;
	struct prompt p;
	struct prompt other;

	create_again(4 << 20, 32);
	for (unsigned i = 0; i < 300; i++) {
		prompt_start(&p);
		for (unsigned k = 0; k < 30; k++)
			prompt_add(&p, test_random(&dice));
		tree_insert(tree, &p, 1, UNLIMITED, 0);
	}
	kvw_radix_purge(tree, 1);
	prompt_of(&other, "another prompt");
	for (unsigned i = 0; i < 20000; i++) {
		other.chunks[other.count - 1].hash = 5000 + i % 40;
		tree_insert(tree, &other, 2, UNLIMITED, 0);
	}
	kvw_radix_stats(tree, &stats);
	ck_assert_uint_le(stats.chunks, 13 + 40);
}
END_TEST

/* A node that a thousand workers held gives their places back when they are gone. */
START_TEST(purged_holders_are_reclaimed)
{
	struct kvw_strategy_stats stats = {0};
	struct prompt p;
	struct prompt other;

	create_again(1 << 20, 32);
	prompt_of(&p, "hot");
	for (uint32_t w = 0; w < KVW_MAX_WORKERS; w++)
		tree_insert(tree, &p, w, UNLIMITED, 0);
	for (uint32_t w = 4; w < KVW_MAX_WORKERS; w++)
		kvw_radix_purge(tree, w);
	prompt_of(&other, "other");
	for (unsigned i = 0; i < 5000; i++) {
		other.chunks[other.count - 1].hash = 9000 + i % 50;
		tree_insert(tree, &other, 2, UNLIMITED, 0);
	}
	kvw_radix_stats(tree, &stats);
	ck_assert_uint_le(stats.bytes - tree->fixed_bytes, (stats.nodes + 1) * 256);
	for (uint32_t w = 0; w < 8; w++)
		ck_assert_uint_eq(tree_reach(tree, &p, w), w < 4 ? p.count : 0);
}
END_TEST

START_TEST(view_keeps_to_capacity)
{
	uint64_t capacity = 100 * CHUNK_UNITS;
	struct prompt first;
	struct prompt p;
	uint64_t dice = 5;

	prompt_of(&first, "the first one");
	tree_insert(tree, &first, 0, capacity, 0);
	for (unsigned i = 0; i < 30; i++) {
		prompt_start(&p);
		for (unsigned k = 0; k < 10; k++)
			prompt_add(&p, test_random(&dice));
		tree_insert(tree, &p, 0, capacity, 0);
		ck_assert_uint_le(kvw_radix_view_tokens(tree, 0), capacity);
		ck_assert_uint_eq(tree_reach(tree, &p, 0), 10);
		tree_check(tree);
	}
	ck_assert_uint_ge(kvw_radix_view_tokens(tree, 0), capacity * 8 / 10);
	ck_assert_uint_eq(tree_reach(tree, &first, 0), 0);
}
END_TEST

/* As engines do: the end of a prompt goes before its beginning. */
START_TEST(ageing_takes_the_tail_first)
{
	uint64_t capacity = 400 * CHUNK_UNITS;
	struct prompt old;
	struct prompt new;
	uint32_t left = 0;

	prompt_start(&old);
	prompt_start(&new);
	for (unsigned i = 0; i < 300; i++)
		prompt_add(&old, i);
	for (unsigned i = 0; i < 200; i++)
		prompt_add(&new, 1000 + i);
	tree_insert(tree, &old, 0, capacity, 0);
	tree_insert(tree, &new, 0, capacity, 0);
	left = tree_reach(tree, &old, 0);
	ck_assert_uint_gt(left, 150); /* 200 fit; ticks are a sixteenth of the capacity here */
	ck_assert_uint_le(left, 200);
	ck_assert_uint_eq(tree_reach(tree, &new, 0), 200);
}
END_TEST

START_TEST(prompt_beyond_capacity_is_harmless)
{
	struct prompt p;

	prompt_start(&p);
	for (unsigned i = 0; i < 300; i++)
		prompt_add(&p, i);
	for (unsigned i = 0; i < 10; i++) {
		tree_insert(tree, &p, 0, 50 * CHUNK_UNITS, 0);
		tree_insert(tree, &p, 1, 1, 0);
		ck_assert_uint_le(kvw_radix_view_tokens(tree, 0), 50 * CHUNK_UNITS);
		ck_assert_uint_le(kvw_radix_view_tokens(tree, 1), 1);
		tree_check(tree);
	}
}
END_TEST

START_TEST(bytes_stay_below_the_limit)
{
	struct kvw_strategy_stats stats = {0};
	uint64_t dice = 11;
	uint64_t missing = 0;
	struct prompt p;

	create_again(2 << 20, 4);
	for (unsigned i = 0; i < 20000; i++) {
		uint32_t worker = (uint32_t)(test_random(&dice) % 16);

		prompt_start(&p);
		for (unsigned k = 0; k < 2 + i % 70; k++)
			prompt_add(&p, test_random(&dice) % 64 + (k < 4 ? 0 : 64));
		tree_insert(tree, &p, worker, UNLIMITED, i * MS);
		missing += tree_reach(tree, &p, worker) != p.count;
		kvw_radix_stats(tree, &stats);
		EXPECT(stats.bytes <= 2 << 20);
	}
	/* What was inserted last is there, short of a rare find of nothing to evict. */
	ck_assert_uint_le(missing, 20);
	ck_assert_uint_gt(stats.evicted_chunks, 100000);
	ck_assert_uint_gt(stats.bytes, (2 << 20) * 9 / 10);
}
END_TEST

/* Branches in use survive at the limit, branches out of use go. */
START_TEST(old_branches_go_first)
{
	struct prompt *hot = calloc(50, sizeof(*hot));
	struct prompt cold;
	struct prompt p;
	uint64_t dice = 3;
	int64_t now = 0;
	unsigned kept = 0;

	create_again(2 << 20, 4);
	ck_assert_ptr_nonnull(hot);
	prompt_start(&cold);
	for (unsigned k = 0; k < 60; k++)
		prompt_add(&cold, 900000 + k);
	tree_insert(tree, &cold, 0, UNLIMITED, now);
	for (unsigned i = 0; i < 50; i++) {
		prompt_start(&hot[i]);
		for (unsigned k = 0; k < 60; k++)
			prompt_add(&hot[i], i * 1000 + k);
	}
	for (unsigned i = 0; i < 30000; i++) {
		now += 5 * MS;
		tree_insert(tree, &hot[i % 50], 0, UNLIMITED, now);
		prompt_start(&p);
		for (unsigned k = 0; k < 20; k++)
			prompt_add(&p, test_random(&dice));
		tree_insert(tree, &p, 1, UNLIMITED, now);
	}
	for (unsigned i = 0; i < 50; i++)
		kept += tree_reach(tree, &hot[i], 0) == 60;
	ck_assert_uint_ge(kept, 48);
	ck_assert_uint_eq(tree_reach(tree, &cold, 0), 0);
	free(hot);
}
END_TEST

/* --- against a naive model --- */

#define MODEL_PROMPTS 200
#define MODEL_WORKERS 6
#define MODEL_CHUNKS  (1 << 14)

/* When each worker last used each chunk, and how much it used in between. */
struct model {
	struct prompt prompts[MODEL_PROMPTS];
	uint64_t keys[MODEL_CHUNKS];
	uint64_t used[MODEL_WORKERS][MODEL_CHUNKS]; /* clock at the last use; 0: not held */
	uint64_t clock[MODEL_WORKERS];              /* tokens ever used */
};

static unsigned model_id(struct model *m, uint64_t key)
{
	unsigned i = (unsigned)(key % MODEL_CHUNKS);

	while (m->keys[i] != 0 && m->keys[i] != key)
		i = (i + 1) % MODEL_CHUNKS;
	m->keys[i] = key;
	return i;
}

/* Prompts that share beginnings of all lengths. */
static struct model *model_make(uint64_t seed)
{
	struct model *m = calloc(1, sizeof(*m));

	ck_assert_ptr_nonnull(m);
	for (unsigned i = 0; i < MODEL_PROMPTS; i++) {
		struct prompt *p = &m->prompts[i];
		unsigned length = 1 + (unsigned)(test_random(&seed) % 60);

		prompt_start(p);
		if (i > 0 && test_random(&seed) % 4 != 0) {
			*p = m->prompts[test_random(&seed) % i];
			p->count = p->end = 1 + (uint32_t)(test_random(&seed) % p->count);
		}
		while (length-- > 0 && p->count < 120)
			prompt_add(p, test_random(&seed) % 1000);
	}
	return m;
}

static void model_use(struct model *m, uint32_t worker, const struct prompt *p)
{
	for (uint32_t i = p->count; i-- > 0;)
		m->used[worker][model_id(m, p->chunks[i].hash)] = m->clock[worker] += CHUNK_UNITS;
}

/* Leading chunks that a worker used at all, and for which `since` tokens of other chunks used
 * later, and `passed` tokens of any use, stay within the limits. */
static uint32_t model_reach(struct model *m, uint32_t worker, const struct prompt *p,
	uint64_t distinct_limit, uint64_t use_limit)
{
	for (uint32_t i = 0; i < p->count; i++) {
		uint64_t at = m->used[worker][model_id(m, p->chunks[i].hash)];
		uint64_t since = 0;

		if (at == 0 || m->clock[worker] - at > use_limit)
			return i;
		for (unsigned k = 0; k < MODEL_CHUNKS && distinct_limit != UINT64_MAX; k++)
			since += m->used[worker][k] >= at ? CHUNK_UNITS : 0;
		if (since > distinct_limit)
			return i;
	}
	return p->count;
}

START_TEST(equals_the_model_without_limits)
{
	struct model *m = model_make((uint64_t)_i + 1);
	uint64_t dice = (uint64_t)_i + 77;

	create_again(16 << 20, _i % 2 == 0 ? 32 : 4);
	for (unsigned step = 0; step < 4000; step++) {
		const struct prompt *p = &m->prompts[test_random(&dice) % MODEL_PROMPTS];
		uint32_t worker = (uint32_t)(test_random(&dice) % MODEL_WORKERS);

		if (test_random(&dice) % 500 == 0) {
			kvw_radix_purge(tree, worker);
			memset(m->used[worker], 0, sizeof(m->used[worker]));
		}
		EXPECT(tree_reach(tree, p, worker) ==
			model_reach(m, worker, p, UINT64_MAX, UINT64_MAX));
		if (test_random(&dice) % 3 == 0) {
			tree_insert(tree, p, worker, UNLIMITED, step * MS);
			model_use(m, worker, p);
		}
		if (step % 500 == 0)
			tree_check(tree);
	}
	free(m);
}
END_TEST

/* With a capacity the view lies between LRU of that capacity and LRU of one that is smaller by
 * what the tick's precision and a node at either end allow; now and then a part of a run, of which
 * only two times are known, goes too early or too late. */
START_TEST(view_is_lru_of_its_capacity)
{
	struct model *m = model_make((uint64_t)_i + 100);
	uint64_t capacity = 400 * CHUNK_UNITS;
	uint64_t margin = capacity / 16 + 2 * KVW_RADIX_RUN * CHUNK_UNITS;
	uint64_t dice = (uint64_t)_i + 5;
	unsigned between = 0, off = 0;

	for (unsigned step = 0; step < 1500; step++) {
		const struct prompt *p = &m->prompts[test_random(&dice) % MODEL_PROMPTS];
		uint32_t worker = (uint32_t)(test_random(&dice) % 3);
		uint32_t reach = tree_reach(tree, p, worker);
		uint32_t most = model_reach(m, worker, p, capacity, UINT64_MAX);
		uint32_t least = model_reach(m, worker, p, capacity - margin, 3 * capacity);

		EXPECT(reach < most + KVW_RADIX_RUN);
		off += reach > most || reach < least;
		between += most > least;
		tree_insert(tree, p, worker, capacity, step * MS);
		model_use(m, worker, p);
		if (step % 100 == 0)
			tree_check(tree);
	}
	EXPECT(between < 700); /* or the bounds would say nothing */
	ck_assert_uint_le(off, 1500 / 50);
	free(m);
}
END_TEST

/* Small soak: two million inserts at a small limit; nothing grows, nothing leaks. */
START_TEST(soak_keeps_memory_flat)
{
	struct kvw_strategy_stats stats = {0};
	uint64_t dice = 2;
	struct prompt p;

	create_again(1 << 20, 4);
	for (unsigned i = 0; i < kvt_test_steps(2000000); i++) {
		prompt_start(&p);
		for (unsigned k = 0; k < 6; k++)
			prompt_add(&p, test_random(&dice) % (k < 2 ? 4 : 1000));
		tree_insert(tree, &p, i % 32, 300 * CHUNK_UNITS, (int64_t)i * 100000);
		if (i % 50000 == 0) {
			kvw_radix_purge(tree, i / 50000 % 32);
			kvw_radix_stats(tree, &stats);
			EXPECT(stats.bytes <= 1 << 20);
			tree_check(tree);
		}
	}
}
END_TEST

/* What a worker holds beyond `kept` chunks of a prompt goes; what others hold, and what it holds of others,
 * stays. */
START_TEST(a_chain_is_retracted)
{
	struct kvw_radix_path *path = calloc(1, sizeof(*path));
	struct prompt p;
	struct prompt other;

	ck_assert_ptr_nonnull(path);
	prompt_start(&p);
	for (unsigned i = 0; i < 100; i++)
		prompt_add(&p, i);
	prompt_start(&other);
	for (unsigned i = 0; i < 60; i++)
		prompt_add(&other, i < 40 ? i : 1000 + i);
	for (uint32_t kept = 0; kept <= 100; kept++) {
		kvw_radix_purge(tree, 0);
		tree_insert(tree, &other, 0, UNLIMITED, 0);
		tree_insert(tree, &p, 0, UNLIMITED, MS);
		tree_insert(tree, &p, 5, UNLIMITED, MS);
		kvw_radix_retract(tree, p.chunks, p.count, kept, 0, path);
		ck_assert_uint_eq(tree_reach(tree, &p, 0), kept);
		ck_assert_uint_eq(tree_reach(tree, &other, 0), kept < 40 ? kept : 60);
		ck_assert_uint_eq(tree_reach(tree, &p, 5), 100);
		tree_check(tree);
	}
	kvw_radix_retract(tree, other.chunks, other.count, 0, 7, path);
	ck_assert_uint_eq(tree_reach(tree, &p, 0), 100);
	kvw_radix_retract(tree, p.chunks, 0, 0, 0, path);
	free(path);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("radix");
	TCase *basic = tcase_create("basic");
	TCase *limits = tcase_create("limits");
	TCase *model = tcase_create("model");

	tcase_add_checked_fixture(basic, setup, teardown);
	tcase_add_checked_fixture(limits, setup, teardown);
	tcase_add_checked_fixture(model, setup, teardown);
	tcase_add_test(basic, empty_tree_knows_nothing);
	tcase_add_test(basic, longest_prefix_of_each_worker);
	tcase_add_test(basic, growing_conversation_is_stored_once);
	tcase_add_test(basic, a_thousand_workers_hold_one_prompt);
	tcase_add_test(basic, purge_forgets_one_worker_only);
	tcase_add_test(basic, purged_branches_are_reclaimed);
	tcase_add_test(basic, purged_holders_are_reclaimed);
	tcase_add_test(basic, a_chain_is_retracted);
	tcase_add_test(limits, view_keeps_to_capacity);
	tcase_add_test(limits, ageing_takes_the_tail_first);
	tcase_add_test(limits, prompt_beyond_capacity_is_harmless);
	tcase_add_test(limits, bytes_stay_below_the_limit);
	tcase_add_test(limits, old_branches_go_first);
	tcase_add_test(limits, soak_keeps_memory_flat);
	tcase_add_loop_test(model, equals_the_model_without_limits, 0, 6);
	tcase_add_loop_test(model, view_is_lru_of_its_capacity, 0, 3);
	tcase_set_timeout(limits, 240);
	tcase_set_timeout(model, 240);
	suite_add_tcase(suite, basic);
	suite_add_tcase(suite, limits);
	suite_add_tcase(suite, model);
	return run_suite(suite);
}
