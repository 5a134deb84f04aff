/*
 * radix_keep_test.c - a prefix tree that was kept and recalled knows what it knew, in a tree of any size, and is
 * sound whatever the records say.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "routing/radix_keep.h"
#include "routing/radix_node.h"
#include "support.h"
#include "tests/unit/suite.h"

#define UNLIMITED UINT64_C(1000000000)
#define MS        INT64_C(1000000)
#define MOST      200000

/* Records in memory. */
struct kept {
	enum kvw_keep_kind kinds[MOST];
	uint8_t *records[MOST];
	size_t lens[MOST];
	size_t count, at;
};

static struct kept kept;
static struct kvw_radix *tree, *second;
static uint32_t workers[KVW_MAX_WORKERS];

static struct kvw_radix *create(uint64_t bytes, uint64_t seed)
{
	struct kvw_radix_options options = {.bytes = bytes, .seed = seed, .slack_shift = 32};
	struct kvw_radix *out = NULL;

	ck_assert_int_eq(kvw_radix_create(&options, &out), KVW_OK);
	return out;
}

static void setup(void)
{
	kept = (struct kept){.count = 0};
	tree = create(UINT64_C(4) << 20, 1);
	second = NULL;
	for (uint32_t i = 0; i < KVW_MAX_WORKERS; i++)
		workers[i] = i;
}

static void teardown(void)
{
	tree_check(tree);
	kvw_radix_destroy(tree);
	if (second != NULL)
		tree_check(second);
	kvw_radix_destroy(second);
	for (size_t i = 0; i < kept.count; i++)
		free(kept.records[i]);
}

static enum kvw_err put(void *arg, enum kvw_keep_kind kind, const void *record, size_t len)
{
	(void)arg;
	if (kept.count == MOST)
		return KVW_ELIMIT;
	EXPECT(len <= KVW_KEPT_MOST);
	kept.kinds[kept.count] = kind;
	kept.lens[kept.count] = len;
	kept.records[kept.count] = malloc(len);
	memcpy(kept.records[kept.count++], record, len);
	return KVW_OK;
}

static void keep(void)
{
	const struct kvw_keep_out out = {.put = put};

	ck_assert_int_eq(kvw_radix_keep(tree, &out), KVW_OK);
}

static enum kvw_err recall(uint64_t bytes, int64_t now_ns)
{
	const struct kvw_keep_in in = {.workers = workers, .now_ns = now_ns};
	struct kvw_radix_recall *going = NULL;
	enum kvw_err err;

	second = create(bytes, 2);
	ck_assert_int_eq(kept.kinds[0], KVW_KEPT_TREE);
	err = kvw_radix_recall_begin(second, &in, kept.records[0], kept.lens[0], &going);
	if (err != KVW_OK)
		return err;
	for (size_t i = 1; i < kept.count; i++)
		if (kept.kinds[i] == KVW_KEPT_NODE)
			kvw_radix_recall_node(going, kept.records[i], kept.lens[i]);
		else
			kvw_radix_recall_view(going, kept.records[i], kept.lens[i]);
	kvw_radix_recall_end(going);
	return KVW_OK;
}

/* Conversations of some turns each, by 40 workers; the same for the same `which`. */
static void make_prompt(struct prompt *p, uint64_t which)
{
	uint64_t random = which + 1;
	uint32_t chunks = 1 + (uint32_t)(test_random(&random) % 200);

	prompt_start(p);
	for (uint32_t i = 0; i < chunks; i++)
		prompt_add(p, i < 20 ? i : i < 40 ? which / 8 * 1000 + i : which * 1000 + i);
}

static void fill(unsigned prompts)
{
	struct prompt p;

	for (unsigned i = 0; i < prompts; i++) {
		make_prompt(&p, i);
		tree_insert(tree, &p, i * 7 % 40, UNLIMITED, (int64_t)i * MS);
	}
}

/* Do both trees say the same of all these prompts? */
static void expect_same(unsigned prompts, uint32_t shift)
{
	struct prompt p;

	for (unsigned i = 0; i < prompts; i++) {
		make_prompt(&p, i);
		for (uint32_t w = 0; w < 40; w++)
			EXPECT(tree_reach(tree, &p, w) == tree_reach(second, &p, w + shift));
	}
	for (uint32_t w = 0; w < 40; w++)
		ck_assert_uint_eq(
			kvw_radix_view_tokens(tree, w), kvw_radix_view_tokens(second, w + shift));
}

START_TEST(what_it_knew_it_knows)
{
	struct kvw_strategy_stats before, after;

	fill(300);
	keep();
	ck_assert_int_eq(recall(UINT64_C(4) << 20, 400 * MS), KVW_OK);
	expect_same(300, 0);
	kvw_radix_stats(tree, &before);
	kvw_radix_stats(second, &after);
	ck_assert_uint_eq(before.nodes, after.nodes);
	ck_assert_uint_eq(before.chunks, after.chunks);
}
END_TEST

/* The hash table has another size, so each node has another place. */
START_TEST(a_tree_of_another_size_knows_it_too)
{
	fill(300);
	keep();
	ck_assert_int_eq(recall(UINT64_C(64) << 20, 400 * MS), KVW_OK);
	expect_same(300, 0);
}
END_TEST

START_TEST(workers_may_have_other_ids)
{
	fill(300);
	keep();
	for (uint32_t i = 0; i < KVW_MAX_WORKERS; i++)
		workers[i] = i < 40 ? i + 500 : KVW_KEPT_GONE;
	ck_assert_int_eq(recall(UINT64_C(4) << 20, 400 * MS), KVW_OK);
	expect_same(300, 500);
}
END_TEST

START_TEST(a_worker_that_is_another_is_left_out)
{
	struct prompt p;

	fill(300);
	keep();
	workers[7] = KVW_KEPT_GONE;
	ck_assert_int_eq(recall(UINT64_C(4) << 20, 400 * MS), KVW_OK);
	ck_assert_uint_eq(kvw_radix_view_tokens(second, 7), 0);
	for (unsigned i = 0; i < 300; i++) {
		make_prompt(&p, i);
		EXPECT(tree_reach(second, &p, 7) == 0);
		EXPECT(tree_reach(second, &p, 6) == tree_reach(tree, &p, 6));
	}
}
END_TEST

/* A purge between two requests takes nothing into the snapshot. */
START_TEST(what_was_purged_is_not_kept)
{
	struct prompt p;

	fill(300);
	kvw_radix_purge(tree, 7);
	keep();
	ck_assert_int_eq(recall(UINT64_C(4) << 20, 400 * MS), KVW_OK);
	for (unsigned i = 0; i < 300; i++) {
		make_prompt(&p, i);
		EXPECT(tree_reach(second, &p, 7) == 0);
	}
	expect_same(300, 0);
}
END_TEST

START_TEST(many_holders_of_a_node)
{
	struct prompt p;

	prompt_of(&p, "the system prompt that all share");
	for (uint32_t w = 0; w < KVW_MAX_WORKERS; w++)
		tree_insert(tree, &p, w, UNLIMITED, 0);
	keep();
	ck_assert_int_eq(recall(UINT64_C(4) << 20, 0), KVW_OK);
	for (uint32_t w = 0; w < KVW_MAX_WORKERS; w++)
		ck_assert_uint_eq(tree_reach(second, &p, w), p.count);
}
END_TEST

/* It goes on: what is inserted ages what was recalled, in its order. */
START_TEST(it_goes_on_with_what_it_was)
{
	struct kvw_strategy_stats stats;
	struct prompt p;

	fill(300);
	keep();
	ck_assert_int_eq(recall(UINT64_C(2) << 20, 400 * MS), KVW_OK);
	for (unsigned i = 300; i < 5000; i++) {
		make_prompt(&p, i);
		tree_insert(second, &p, i % 40, 20000, (int64_t)i * MS);
		/* The first one finds a view that is far beyond this capacity, in a single tick. */
		EXPECT(i < 340 || tree_reach(second, &p, i % 40) > 0);
	}
	for (uint32_t w = 0; w < 40; w++)
		ck_assert_uint_le(kvw_radix_view_tokens(second, w), 20000);
	kvw_radix_stats(second, &stats);
	ck_assert_uint_le(stats.bytes, stats.bytes_limit);
}
END_TEST

/* A tree that has less room takes what fits. */
START_TEST(a_smaller_tree_takes_what_fits)
{
	struct kvw_strategy_stats stats;

	fill(1500);
	keep();
	ck_assert_int_eq(recall(KVW_RADIX_MIN_BYTES, 2000 * MS), KVW_OK);
	kvw_radix_stats(second, &stats);
	ck_assert_uint_gt(stats.nodes, 100);
	ck_assert_uint_le(stats.bytes, stats.bytes_limit);
}
END_TEST

START_TEST(a_tree_in_use_is_left_alone)
{
	const struct kvw_keep_in in = {.workers = workers};
	struct kvw_radix_recall *going = NULL;

	fill(3);
	keep();
	ck_assert_int_eq(kvw_radix_recall_begin(tree, &in, kept.records[0], kept.lens[0], &going), KVW_EPROTO);
	ck_assert_ptr_null(going);
}
END_TEST

/* A node's record: key 0, index 8, parent 12. */
START_TEST(circles_are_cut)
{
	uint32_t index[MOST], nodes = 0;

	fill(100);
	keep();
	for (size_t i = 0; i < kept.count; i++)
		if (kept.kinds[i] == KVW_KEPT_NODE)
			memcpy(&index[nodes++], kept.records[i] + 8, 4);
	for (size_t i = 0, n = 0; i < kept.count; i++)
		if (kept.kinds[i] == KVW_KEPT_NODE)
			memcpy(kept.records[i] + 12, &index[++n % nodes], 4);
	ck_assert_int_eq(recall(UINT64_C(4) << 20, 100 * MS), KVW_OK);
	for (uint32_t i = 1; i < second->fresh; i++) {
		uint32_t at = second->slots[i].refs != 0 ? i : 0;

		for (unsigned steps = 0; steps < KVW_RADIX_MAX_STEPS && at != 0; steps++)
			at = second->slots[at].link;
		EXPECT(at == 0);
	}
}
END_TEST

START_TEST(nonsense_is_survived)
{
	uint64_t random = 3;

	fill(60);
	keep();
	for (unsigned round = 0; round < 300; round++) {
		for (unsigned i = 0; i < 20; i++) {
			size_t which = test_random(&random) % kept.count;
			size_t at = test_random(&random) % kept.lens[which];

			if (which > 0)
				kept.records[which][at] = (uint8_t)test_random(&random);
		}
		ck_assert_int_eq(recall(KVW_RADIX_MIN_BYTES, 100 * MS), KVW_OK);
		for (unsigned i = 0; i < 100; i++) {
			struct prompt p;

			make_prompt(&p, i);
			tree_insert(second, &p, i % 40, 30000, 200 * MS);
		}
		tree_check(second);
		kvw_radix_destroy(second);
		second = NULL;
	}
}
END_TEST

static void *insert_all_the_time(void *arg)
{
	atomic_bool *stop = arg;
	struct prompt p;

	for (unsigned i = 0; !atomic_load(stop); i++) {
		make_prompt(&p, i % 3000);
		tree_insert(tree, &p, i % 40, 100000, (int64_t)i * MS);
		if (i % 500 == 0)
			kvw_radix_purge(tree, i / 500 % 40);
	}
	return NULL;
}

/* Other threads insert, evict and purge while the tree is kept. */
START_TEST(kept_while_it_is_used)
{
	atomic_bool stop = false;
	pthread_t threads[2];

	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, insert_all_the_time, &stop), 0);
	for (int i = 0; i < 6; i++) {
		for (size_t k = 0; k < kept.count; k++)
			free(kept.records[k]);
		kept.count = 0;
		keep();
		ck_assert_int_eq(recall(UINT64_C(4) << 20, 0), KVW_OK);
		tree_check(second);
		kvw_radix_destroy(second);
		second = NULL;
	}
	atomic_store(&stop, true);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	kvw_radix_destroy(tree);
	tree = create(0, 1);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("radix_keep");

	tcase_set_timeout(tcase, 240);
	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, what_it_knew_it_knows);
	tcase_add_test(tcase, a_tree_of_another_size_knows_it_too);
	tcase_add_test(tcase, workers_may_have_other_ids);
	tcase_add_test(tcase, a_worker_that_is_another_is_left_out);
	tcase_add_test(tcase, what_was_purged_is_not_kept);
	tcase_add_test(tcase, many_holders_of_a_node);
	tcase_add_test(tcase, it_goes_on_with_what_it_was);
	tcase_add_test(tcase, a_smaller_tree_takes_what_fits);
	tcase_add_test(tcase, a_tree_in_use_is_left_alone);
	tcase_add_test(tcase, circles_are_cut);
	tcase_add_test(tcase, nonsense_is_survived);
	tcase_add_test(tcase, kept_while_it_is_used);
	return run_tcase("radix keep", tcase);
}
