/*
 * sim_cache_test.c - the block pool: LRU, reference counts, and a random run against a naive model.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_cache.h"
#include "tests/unit/suite.h"

/* A chain of count blocks, taken, published as first, first + 1, ... and released. */
static void store(struct kvb_cache *cache, uint64_t first, uint32_t count)
{
	uint32_t blocks[64];

	ck_assert(kvb_cache_take(cache, NULL, 0, count, blocks));
	for (uint32_t i = 0; i < count; i++)
		kvb_cache_publish(cache, blocks[i], first + i);
	kvb_cache_release(cache, blocks, count);
}

static uint32_t hits(struct kvb_cache *cache, uint64_t first, uint32_t count)
{
	uint64_t hashes[64];
	uint32_t blocks[64];

	for (uint32_t i = 0; i < count; i++)
		hashes[i] = first + i;
	return kvb_cache_lookup(cache, hashes, count, blocks);
}

START_TEST(one_block_is_never_given_out)
{
	struct kvb_cache *cache = kvb_cache_create(16);
	uint32_t blocks[16];

	ck_assert_uint_eq(kvb_cache_usable(cache), 15);
	ck_assert(!kvb_cache_take(cache, NULL, 0, 16, blocks));
	ck_assert(kvb_cache_take(cache, NULL, 0, 15, blocks));
	ck_assert_uint_eq(kvb_cache_free(cache), 0);
	ck_assert(!kvb_cache_take(cache, NULL, 0, 1, blocks));
	kvb_cache_release(cache, blocks, 15);
	ck_assert_uint_eq(kvb_cache_free(cache), 15);
	kvb_cache_destroy(cache);
}
END_TEST

START_TEST(released_blocks_can_still_be_hit)
{
	struct kvb_cache *cache = kvb_cache_create(9);

	store(cache, 100, 4);
	ck_assert_uint_eq(kvb_cache_free(cache), 8);
	ck_assert_uint_eq(hits(cache, 100, 4), 4);
	ck_assert_uint_eq(hits(cache, 101, 3), 3);
	ck_assert_uint_eq(hits(cache, 200, 1), 0);
	kvb_cache_destroy(cache);
}
END_TEST

START_TEST(oldest_chain_goes_first_and_its_tail_before_its_head)
{
	struct kvb_cache *cache = kvb_cache_create(9);
	uint32_t blocks[8];

	store(cache, 100, 4);
	store(cache, 200, 4);
	ck_assert(kvb_cache_take(cache, NULL, 0, 3, blocks));
	ck_assert_uint_eq(hits(cache, 100, 4), 1); /* only its head is left */
	ck_assert_uint_eq(hits(cache, 200, 4), 4);
	ck_assert_uint_eq(kvb_cache_evictions(cache), 3);
	kvb_cache_release(cache, blocks, 3);
	kvb_cache_destroy(cache);
}
END_TEST

START_TEST(a_hit_makes_a_chain_young_again)
{
	struct kvb_cache *cache = kvb_cache_create(9);
	uint64_t hashes[4] = {100, 101, 102, 103};
	uint32_t found[4], fresh[8];

	store(cache, 100, 4);
	store(cache, 200, 4);
	ck_assert_uint_eq(kvb_cache_lookup(cache, hashes, 4, found), 4);
	ck_assert(kvb_cache_take(cache, found, 4, 0, fresh));
	kvb_cache_release(cache, found, 4);
	ck_assert(kvb_cache_take(cache, NULL, 0, 4, fresh));
	ck_assert_uint_eq(hits(cache, 100, 4), 4);
	ck_assert_uint_eq(hits(cache, 200, 4), 0);
	kvb_cache_release(cache, fresh, 4);
	kvb_cache_destroy(cache);
}
END_TEST

START_TEST(a_block_in_use_is_not_given_out)
{
	struct kvb_cache *cache = kvb_cache_create(5);
	uint64_t hashes[2] = {100, 101};
	uint32_t a[2], b[2], fresh[4];

	store(cache, 100, 2);
	ck_assert_uint_eq(kvb_cache_lookup(cache, hashes, 2, a), 2);
	ck_assert(kvb_cache_take(cache, a, 2, 0, fresh));
	ck_assert_uint_eq(kvb_cache_lookup(cache, hashes, 2, b), 2);
	ck_assert(kvb_cache_take(cache, b, 2, 0, fresh)); /* two sequences share them */
	ck_assert(!kvb_cache_take(cache, NULL, 0, 3, fresh));
	kvb_cache_release(cache, a, 2);
	ck_assert(!kvb_cache_take(cache, NULL, 0, 3, fresh));
	kvb_cache_release(cache, b, 2);
	ck_assert(kvb_cache_take(cache, NULL, 0, 4, fresh));
	kvb_cache_release(cache, fresh, 4);
	kvb_cache_destroy(cache);
}
END_TEST

START_TEST(a_take_that_fails_changes_nothing)
{
	struct kvb_cache *cache = kvb_cache_create(5);
	uint64_t hashes[2] = {100, 101};
	uint32_t found[2], fresh[4];

	store(cache, 100, 2);
	ck_assert_uint_eq(kvb_cache_lookup(cache, hashes, 2, found), 2);
	/* 4 are free, but 2 of them are the hits */
	ck_assert(!kvb_cache_take(cache, found, 2, 3, fresh));
	ck_assert_uint_eq(kvb_cache_free(cache), 4);
	ck_assert_uint_eq(hits(cache, 100, 2), 2);
	ck_assert(kvb_cache_take(cache, found, 2, 2, fresh));
	kvb_cache_release(cache, fresh, 2);
	kvb_cache_release(cache, found, 2);
	kvb_cache_destroy(cache);
}
END_TEST

START_TEST(two_blocks_may_carry_one_hash)
{
	struct kvb_cache *cache = kvb_cache_create(9);
	uint32_t fresh[8];

	store(cache, 100, 1);
	store(cache, 100, 1); /* computed again into another block */
	ck_assert_uint_eq(kvb_cache_published(cache), 2);
	ck_assert(kvb_cache_take(cache, NULL, 0, 7, fresh)); /* 6 empty ones and the older twin */
	ck_assert_uint_eq(kvb_cache_published(cache), 1);
	ck_assert_uint_eq(hits(cache, 100, 1), 1);
	kvb_cache_release(cache, fresh, 7);
	kvb_cache_destroy(cache);
}
END_TEST

START_TEST(reset_forgets_all_but_waits_for_users)
{
	struct kvb_cache *cache = kvb_cache_create(9);
	uint32_t fresh[8];

	store(cache, 100, 4);
	ck_assert(kvb_cache_take(cache, NULL, 0, 1, fresh));
	ck_assert(!kvb_cache_reset(cache));
	ck_assert_uint_eq(hits(cache, 100, 4), 4);
	kvb_cache_release(cache, fresh, 1);
	ck_assert(kvb_cache_reset(cache));
	ck_assert_uint_eq(hits(cache, 100, 4), 0);
	ck_assert_uint_eq(kvb_cache_published(cache), 0);
	kvb_cache_destroy(cache);
}
END_TEST

/* What the pool should be, written without cleverness: a list of blocks in order of release. */
#define POOL 24
struct model {
	uint64_t hash[POOL];  /* 0: none */
	uint64_t freed[POOL]; /* when it was last released */
	bool used[POOL];
	uint64_t clock;
};

static int model_oldest(const struct model *m)
{
	int best = -1;

	for (int i = 1; i < POOL; i++)
		if (!m->used[i] && (best < 0 || m->freed[i] < m->freed[best]))
			best = i;
	return best;
}

static bool model_has(const struct model *m, uint64_t hash)
{
	for (int i = 1; i < POOL; i++)
		if (m->hash[i] == hash)
			return true;
	return false;
}

START_TEST(agrees_with_a_naive_model)
{
	struct kvb_cache *cache = kvb_cache_create(POOL);
	struct model m = {0};
	uint32_t held[POOL], held_count = 0;

	srand(7);
	for (int i = 1; i < POOL; i++)
		m.freed[i] = ++m.clock;
	for (int round = 0; round < 20000; round++) {
		uint64_t hash = (uint64_t)(rand() % 40) + 1;
		uint32_t block;

		if (held_count > 0 && rand() % 2 == 0) {
			uint32_t at = (uint32_t)rand() % held_count;

			block = held[at];
			held[at] = held[--held_count];
			kvb_cache_release(cache, &block, 1);
			m.used[block] = false;
			m.freed[block] = ++m.clock;
		} else if (kvb_cache_take(cache, NULL, 0, 1, &block)) {
			ck_assert_int_eq((int)block, model_oldest(&m));
			m.used[block] = true;
			m.hash[block] = rand() % 4 == 0 ? 0 : hash;
			if (m.hash[block] != 0)
				kvb_cache_publish(cache, block, hash);
			held[held_count++] = block;
		} else {
			ck_assert_int_eq(model_oldest(&m), -1);
		}
		ck_assert_uint_eq(kvb_cache_free(cache), POOL - 1 - held_count);
		ck_assert_int_eq(
			kvb_cache_lookup(cache, &hash, 1, &block) == 1, model_has(&m, hash));
	}
	kvb_cache_release(cache, held, held_count);
	kvb_cache_destroy(cache);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("cache");

	tcase_add_test(tests, one_block_is_never_given_out);
	tcase_add_test(tests, released_blocks_can_still_be_hit);
	tcase_add_test(tests, oldest_chain_goes_first_and_its_tail_before_its_head);
	tcase_add_test(tests, a_hit_makes_a_chain_young_again);
	tcase_add_test(tests, a_block_in_use_is_not_given_out);
	tcase_add_test(tests, a_take_that_fails_changes_nothing);
	tcase_add_test(tests, two_blocks_may_carry_one_hash);
	tcase_add_test(tests, reset_forgets_all_but_waits_for_users);
	tcase_add_test(tests, agrees_with_a_naive_model);
	return run_tcase("sim_cache", tests);
}
