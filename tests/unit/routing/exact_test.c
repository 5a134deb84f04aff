/*
 * exact_test.c - coverages of workers, and purges that are asked for anywhere and carried out by the
 * feed's thread.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "routing/exact.h"
#include "support.h"
#include "tests/unit/suite.h"

#define BLOCK 16

static struct kvw_exact *make(void)
{
	struct kvw_strategy_options options = {.index_bytes = 2 << 20, .seed = 3};
	struct kvw_exact *exact = NULL;

	ck_assert_int_eq(kvw_exact_create(&options, &exact), KVW_OK);
	return exact;
}

/* The worker stores blocks 1, 2, ... of a chain. */
static void store(struct kvw_exact *exact, uint32_t worker, uint32_t source, uint32_t count)
{
	uint64_t keys[8];
	struct kvw_kvindex_blocks blocks = {0, KVW_TIER_DEVICE, count, keys, keys};

	for (uint32_t i = 0; i < count; i++)
		keys[i] = i + 1;
	kvw_kvindex_stored(
		kvw_exact_index(exact), (struct kvw_kvindex_from){worker, source}, &blocks);
}

static uint32_t blocks_of(const struct kvw_exact *exact, uint32_t worker)
{
	static _Thread_local struct kvw_kvindex_hits hits;
	const uint64_t keys[] = {1, 2, 3, 4, 5, 6, 7, 8};
	struct kvw_exact_chain chain = {KVW_REPORTER_ENGINE, 0, BLOCK, 8, keys};

	kvw_exact_match(exact, &chain, &hits);
	return hits.blocks[worker];
}

START_TEST(each_reporter_has_its_own_coverage)
{
	struct kvw_exact *exact = make();

	ck_assert_int_eq(kvw_exact_coverage(exact, 5, KVW_REPORTER_ENGINE), KVW_COVERAGE_NONE);
	kvw_exact_set_coverage(exact, 5, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	kvw_exact_set_coverage(exact, 5, KVW_REPORTER_LMCACHE, KVW_COVERAGE_BLIND);
	ck_assert_int_eq(kvw_exact_coverage(exact, 5, KVW_REPORTER_ENGINE), KVW_COVERAGE_FULL);
	ck_assert_int_eq(kvw_exact_coverage(exact, 5, KVW_REPORTER_LMCACHE), KVW_COVERAGE_BLIND);
	ck_assert_int_eq(kvw_exact_coverage(exact, 4, KVW_REPORTER_ENGINE), KVW_COVERAGE_NONE);
	kvw_exact_set_coverage(exact, 5, KVW_REPORTER_ENGINE, KVW_COVERAGE_NONE);
	ck_assert_int_eq(kvw_exact_coverage(exact, 5, KVW_REPORTER_ENGINE), KVW_COVERAGE_NONE);
	ck_assert_int_eq(kvw_exact_coverage(exact, 5, KVW_REPORTER_LMCACHE), KVW_COVERAGE_BLIND);
	kvw_exact_destroy(exact);
}
END_TEST

START_TEST(a_purged_worker_is_not_believed_until_it_is_read_again)
{
	struct kvw_exact *exact = make();
	uint32_t purged[4];

	store(exact, 5, 0, 3);
	store(exact, 6, 0, 3);
	kvw_exact_set_coverage(exact, 5, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	kvw_exact_set_coverage(exact, 6, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	kvw_exact_purge(exact, 5);
	ck_assert_int_eq(kvw_exact_coverage(exact, 5, KVW_REPORTER_ENGINE), KVW_COVERAGE_BLIND);
	ck_assert_int_eq(kvw_exact_coverage(exact, 5, KVW_REPORTER_LMCACHE), KVW_COVERAGE_NONE);
	/* What the feed says before it knows of the purge does not count. */
	kvw_exact_set_coverage(exact, 5, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	ck_assert_int_eq(kvw_exact_coverage(exact, 5, KVW_REPORTER_ENGINE), KVW_COVERAGE_BLIND);
	ck_assert_uint_eq(kvw_exact_tick(exact, 0, purged, 4), 1);
	ck_assert_uint_eq(purged[0], 5);
	ck_assert_int_eq(kvw_exact_coverage(exact, 5, KVW_REPORTER_ENGINE), KVW_COVERAGE_BLIND);
	ck_assert_uint_eq(blocks_of(exact, 5), 0);
	ck_assert_uint_eq(blocks_of(exact, 6), 3);
	ck_assert_int_eq(kvw_exact_coverage(exact, 6, KVW_REPORTER_ENGINE), KVW_COVERAGE_FULL);
	kvw_exact_set_coverage(exact, 5, KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	ck_assert_int_eq(kvw_exact_coverage(exact, 5, KVW_REPORTER_ENGINE), KVW_COVERAGE_FULL);
	ck_assert_uint_eq(kvw_exact_tick(exact, 0, purged, 4), 0);
	kvw_exact_destroy(exact);
}
END_TEST

START_TEST(purges_beyond_the_cap_wait_for_the_next_tick)
{
	struct kvw_exact *exact = make();
	bool seen[KVW_MAX_WORKERS] = {false};
	uint32_t purged[100];
	size_t sum = 0;
	size_t got = 0;

	for (uint32_t w = 0; w < KVW_MAX_WORKERS; w += 3)
		kvw_exact_purge(exact, w);
	while ((got = kvw_exact_tick(exact, 0, purged, 100)) > 0) {
		sum += got;
		for (size_t i = 0; i < got; i++) {
			ck_assert(!seen[purged[i]]);
			seen[purged[i]] = true;
		}
	}
	ck_assert_uint_eq(sum, (KVW_MAX_WORKERS + 2) / 3);
	kvw_exact_destroy(exact);
}
END_TEST

/* An engine's ranks wait for each other and so do LMCache's, but not the ones for the others. */
START_TEST(reporters_require_their_own_sources_only)
{
	struct kvw_exact *exact = make();
	struct kvw_kvindex *index = kvw_exact_index(exact);

	kvw_kvindex_require(index, 1, KVW_EXACT_LMCACHE_MASK, 3u << KVW_EXACT_LMCACHE_SOURCE);
	kvw_kvindex_require(index, 1, KVW_EXACT_ENGINE_MASK, 3u);
	store(exact, 1, 0, 5);
	store(exact, 1, KVW_EXACT_LMCACHE_SOURCE, 2);
	ck_assert_uint_eq(blocks_of(exact, 1), 0);
	store(exact, 1, 1, 4);
	ck_assert_uint_eq(blocks_of(exact, 1), 4);
	store(exact, 1, KVW_EXACT_LMCACHE_SOURCE, 7);
	ck_assert_uint_eq(blocks_of(exact, 1), 4);
	store(exact, 1, KVW_EXACT_LMCACHE_SOURCE + 1, 6);
	ck_assert_uint_eq(blocks_of(exact, 1), 6);
	kvw_kvindex_require(
		index, 1, KVW_EXACT_ENGINE_MASK, 7u); /* a third rank, which has nothing */
	kvw_kvindex_cleared(index, 1, KVW_EXACT_LMCACHE_SOURCE, KVW_KVINDEX_ANY);
	ck_assert_uint_eq(blocks_of(exact, 1), 0);
	kvw_kvindex_require(index, 1, KVW_EXACT_LMCACHE_MASK, 0);
	ck_assert_uint_eq(blocks_of(exact, 1), 6);
	kvw_exact_destroy(exact);
}
END_TEST

START_TEST(memory_stays_within_its_limit)
{
	struct kvw_strategy_options options = {.index_bytes = _i == 0 ? 1 << 20 : 64 << 20};
	struct kvw_strategy_stats stats = {0};
	struct kvw_exact *exact = NULL;

	ck_assert_int_eq(kvw_exact_create(&options, &exact), KVW_OK);
	kvw_exact_stats(exact, &stats);
	ck_assert_uint_le(stats.exact_bytes_limit, options.index_bytes);
	ck_assert_uint_gt(stats.exact_bytes_limit, options.index_bytes / 10 * 9);
	for (uint32_t w = 0; w < 100; w++)
		store(exact, w, 0, 8);
	kvw_exact_stats(exact, &stats);
	ck_assert_uint_eq(stats.exact_blocks, 8);
	ck_assert_uint_eq(stats.exact_holders, 800);
	ck_assert_uint_le(stats.exact_bytes, stats.exact_bytes_limit);
	kvw_exact_destroy(exact);
}
END_TEST

/* --- races --- */

#define WORKERS 8
#define ROUNDS  20000

struct race {
	struct kvw_exact *exact;
	_Atomic uint32_t learned[WORKERS]; /* how often the feed has read a worker again */
	_Atomic unsigned askers;           /* still at work */
};

/* A thread that asked for a purge sees FULL again only after the feed has read the worker again. */
static void *ask(void *arg)
{
	struct race *race = arg;
	uint64_t dice = (uint64_t)(uintptr_t)&dice;

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint32_t w = (uint32_t)(test_random(&dice) % WORKERS);
		uint32_t before = atomic_load(&race->learned[w]);

		kvw_exact_purge(race->exact, w);
		for (unsigned k = 0; k < 4; k++) {
			if (kvw_exact_coverage(race->exact, w, KVW_REPORTER_ENGINE) != KVW_COVERAGE_FULL)
				continue;
			EXPECT(atomic_load(&race->learned[w]) != before);
			(void)blocks_of(race->exact, w);
		}
	}
	atomic_fetch_sub(&race->askers, 1);
	return NULL;
}

START_TEST(purges_race_with_coverages)
{
	struct race race = {.exact = make(), .askers = 3};
	pthread_t threads[3];
	uint32_t purged[WORKERS];

	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, ask, &race), 0);
	while (atomic_load(&race.askers) > 0) {
		size_t count = kvw_exact_tick(race.exact, 0, purged, WORKERS);

		for (size_t i = 0; i < count; i++) {
			EXPECT(blocks_of(race.exact, purged[i]) == 0);
			store(race.exact, purged[i], 0, 4);
			atomic_fetch_add(&race.learned[purged[i]], 1);
			kvw_exact_set_coverage(
				race.exact, purged[i], KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
		}
	}
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	(void)kvw_exact_tick(race.exact, 0, purged, WORKERS);
	ck_assert_uint_eq(kvw_exact_tick(race.exact, 0, purged, WORKERS), 0);
	kvw_exact_destroy(race.exact);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("exact");

	tcase_add_test(tcase, each_reporter_has_its_own_coverage);
	tcase_add_test(tcase, a_purged_worker_is_not_believed_until_it_is_read_again);
	tcase_add_test(tcase, purges_beyond_the_cap_wait_for_the_next_tick);
	tcase_add_test(tcase, reporters_require_their_own_sources_only);
	tcase_add_loop_test(tcase, memory_stays_within_its_limit, 0, 2);
	tcase_add_test(tcase, purges_race_with_coverages);
	tcase_set_timeout(tcase, 120);
	return run_tcase("exact", tcase);
}
