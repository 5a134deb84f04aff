/*
 * kvindex_threads_test.c - readers that match chains while the writer changes them.
 *
 * Which workers may ever hold a chain, and in which tier, follows from its number. Whatever a reader
 * sees in between must keep to that, slots being freed and used again all the time; and when the writer
 * rests the index must be what the events say.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "routing/kvindex.h"
#include "support.h"
#include "tests/unit/steps.h"
#include "tests/unit/suite.h"

#define READERS 3
#define WORKERS 40
#define LENGTH  12 /* blocks of a chain */
#define BLOCK   16
#define CHAINS  900 /* at most */

#define ROUNDS (KVT_TEST_SEES_RACES ? 30000 : 200000)

struct scene {
	struct kvw_kvindex *index;
	uint32_t chains;
	uint64_t dice;
	bool held[CHAINS][WORKERS]; /* by the writer's events */
	atomic_bool over;
	_Atomic uint64_t wrong;
	_Atomic uint64_t hits;
};

/* A seventh of the chains are shared by all, the others by one worker in eight. */
static bool may_hold(uint32_t chain, uint32_t worker)
{
	return chain % 7 == 0 || chain % 8 == worker % 8;
}

static enum kvw_tier tier_of(uint32_t chain, uint32_t worker)
{
	return (enum kvw_tier)((chain + worker) % KVW_TIER_COUNT);
}

static void keys_of(uint32_t chain, uint64_t *keys)
{
	for (uint32_t i = 0; i < LENGTH; i++) {
		uint64_t state = (uint64_t)chain << 8 | i;

		keys[i] = test_random(&state);
	}
}

/* --- the writer --- */

static void change(struct scene *scene, uint32_t chain, uint32_t worker)
{
	struct kvw_kvindex_from from = {worker, chain % KVW_KVINDEX_SOURCES};
	uint64_t keys[LENGTH];
	struct kvw_kvindex_blocks blocks = {1, tier_of(chain, worker), LENGTH, keys, keys};

	keys_of(chain, keys);
	if (scene->held[chain][worker])
		kvw_kvindex_removed(scene->index, from, &blocks);
	else
		kvw_kvindex_stored(scene->index, from, &blocks);
	scene->held[chain][worker] ^= true;
}

static void purge(struct scene *scene, uint32_t worker)
{
	kvw_kvindex_purge(scene->index, worker);
	for (uint32_t chain = 0; chain < scene->chains; chain++)
		scene->held[chain][worker] = false;
}

static void write_all(struct scene *scene)
{
	for (unsigned i = 0; i < ROUNDS; i++) {
		uint32_t chain = (uint32_t)(test_random(&scene->dice) % scene->chains);
		uint32_t worker = (uint32_t)(test_random(&scene->dice) % WORKERS);

		if (may_hold(chain, worker))
			change(scene, chain, worker);
		if (i % 1000 == 0)
			purge(scene, worker);
		if (i % 100 == 0)
			kvw_kvindex_tick(scene->index, i);
	}
}

/* --- readers --- */

/* Whether all hits of a chain are possible. */
static bool possible(const struct kvw_kvindex_hits *hits, uint32_t chain)
{
	for (uint32_t i = 0; i < hits->count; i++) {
		uint32_t worker = hits->workers[i];
		uint32_t blocks = 0;

		if (worker >= WORKERS || !may_hold(chain, worker))
			return false;
		blocks = hits->blocks[worker];
		if (blocks == 0 || blocks > LENGTH || hits->tier[worker] != tier_of(chain, worker))
			return false;
		for (uint32_t t = 0; t < KVW_TIER_COUNT; t++)
			if (hits->tokens[worker][t] !=
				(t == tier_of(chain, worker) ? blocks * BLOCK : 0))
				return false;
	}
	return true;
}

static void *read_all(void *arg)
{
	struct scene *scene = arg;
	struct kvw_kvindex_hits *hits = calloc(1, sizeof(*hits));
	struct kvw_kvindex_stats stats;
	uint64_t keys[LENGTH];
	uint64_t dice = 99;

	while (hits != NULL && !atomic_load(&scene->over)) {
		uint32_t chain = (uint32_t)(test_random(&dice) % scene->chains);

		keys_of(chain, keys);
		kvw_kvindex_match(scene->index, 1, keys, LENGTH, BLOCK, hits);
		atomic_fetch_add(&scene->wrong, !possible(hits, chain));
		atomic_fetch_add(&scene->hits, hits->count);
		kvw_kvindex_stats(scene->index, &stats);
		atomic_fetch_add(&scene->wrong, stats.bytes > stats.bytes_limit);
	}
	free(hits);
	return NULL;
}

/* Exact: nothing was dropped. Otherwise the index may know less. */
static void check_rest(struct scene *scene, bool exact)
{
	static struct kvw_kvindex_hits hits;
	uint64_t keys[LENGTH];

	for (uint32_t chain = 0; chain < scene->chains; chain++) {
		keys_of(chain, keys);
		kvw_kvindex_match(scene->index, 1, keys, LENGTH, BLOCK, &hits);
		EXPECT(possible(&hits, chain));
		for (uint32_t worker = 0; worker < WORKERS; worker++) {
			uint32_t held = scene->held[chain][worker] ? LENGTH : 0;

			EXPECT(exact ? hits.blocks[worker] == held : hits.blocks[worker] <= held);
		}
	}
}

static void race(uint64_t bytes, uint32_t chains, bool exact)
{
	struct kvw_kvindex_options options = {.bytes = bytes, .seed = 5};
	struct scene *scene = calloc(1, sizeof(*scene));
	pthread_t readers[READERS];
	struct kvw_kvindex_stats stats;

	ck_assert_ptr_nonnull(scene);
	ck_assert_int_eq(kvw_kvindex_create(&options, &scene->index), KVW_OK);
	scene->chains = chains;
	scene->dice = chains;
	for (unsigned i = 0; i < READERS; i++)
		ck_assert_int_eq(pthread_create(&readers[i], NULL, read_all, scene), 0);
	write_all(scene);
	/* The machine may have run the writer alone: let readers see something. */
	while (atomic_load(&scene->hits) == 0)
		;
	atomic_store(&scene->over, true);
	for (unsigned i = 0; i < READERS; i++)
		ck_assert_int_eq(pthread_join(readers[i], NULL), 0);
	kvw_kvindex_stats(scene->index, &stats);
	ck_assert(exact ? stats.dropped == 0 : stats.dropped > 0);
	ck_assert_uint_eq(atomic_load(&scene->wrong), 0);
	check_rest(scene, exact);
	kvw_kvindex_destroy(scene->index);
	free(scene);
}

START_TEST(readers_on_few_chains)
{
	race(8 << 20, 15, true);
}
END_TEST

START_TEST(readers_on_many_chains)
{
	race(32 << 20, CHAINS, true);
}
END_TEST

START_TEST(readers_at_the_byte_limit)
{
	race(KVW_KVINDEX_MIN_BYTES, CHAINS, false);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("threads");

	tcase_add_test(tcase, readers_on_few_chains);
	tcase_add_test(tcase, readers_on_many_chains);
	tcase_add_test(tcase, readers_at_the_byte_limit);
	tcase_set_timeout(tcase, 240);
	return run_tcase("kvindex_threads", tcase);
}
