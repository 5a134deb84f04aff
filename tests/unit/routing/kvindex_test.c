/*
 * kvindex_test.c - the index of KV blocks: runs, tiers, counts, clears, purges, room.
 */
#include <stdlib.h>

#include "routing/kvindex.h"
#include "support.h"
#include "tests/unit/suite.h"

#define BLOCK 16 /* tokens */
#define MOST  64 /* blocks of a chain here */

static struct kvw_kvindex *kv;

static void create(uint64_t bytes)
{
	struct kvw_kvindex_options options = {.bytes = bytes, .seed = 7};

	ck_assert_int_eq(kvw_kvindex_create(&options, &kv), KVW_OK);
}

/* The index of most tests has the default room. */
static void setup(void)
{
	create(0);
}

static void teardown(void)
{
	kvw_kvindex_destroy(kv);
}

static void create_again(uint64_t bytes)
{
	kvw_kvindex_destroy(kv);
	create(bytes);
}

/* Blocks first..first+count of chain `chain`, as an event of space 1 would name them. */
struct event {
	struct kvw_kvindex_blocks blocks;
	uint64_t hashes[MOST];
	uint64_t keys[MOST];
};

static void event_make(
	struct event *e, uint64_t chain, uint32_t first, uint32_t count, enum kvw_tier tier)
{
	e->blocks = (struct kvw_kvindex_blocks){1, tier, count, e->hashes, e->keys};
	for (uint32_t i = 0; i < count; i++) {
		e->hashes[i] = chain << 32 | (first + i);
		e->keys[i] = ~e->hashes[i] * 3;
	}
}

static void store(uint32_t worker, uint32_t source, uint64_t chain, uint32_t first, uint32_t count,
	enum kvw_tier tier)
{
	struct event e;

	event_make(&e, chain, first, count, tier);
	kvw_kvindex_stored(kv, (struct kvw_kvindex_from){worker, source}, &e.blocks);
}

static void drop(uint32_t worker, uint32_t source, uint64_t chain, uint32_t first, uint32_t count,
	enum kvw_tier tier)
{
	struct event e;

	event_make(&e, chain, first, count, tier);
	e.blocks.keys = NULL;
	kvw_kvindex_removed(kv, (struct kvw_kvindex_from){worker, source}, &e.blocks);
}

static struct kvw_kvindex_hits *match(uint32_t space, uint64_t chain, uint32_t count)
{
	static struct kvw_kvindex_hits hits;
	struct event e;

	event_make(&e, chain, 0, count, KVW_TIER_DEVICE);
	kvw_kvindex_match(kv, space, e.keys, count, BLOCK, &hits);
	return &hits;
}

static uint32_t blocks_of(uint32_t worker, uint64_t chain, uint32_t count)
{
	return match(1, chain, count)->blocks[worker];
}

static struct kvw_kvindex_stats stats_of(void)
{
	struct kvw_kvindex_stats stats;

	kvw_kvindex_stats(kv, &stats);
	return stats;
}

START_TEST(longest_run_from_the_front)
{
	struct kvw_kvindex_hits *hits = NULL;

	store(3, 0, 5, 0, 10, KVW_TIER_DEVICE);
	store(4, 0, 5, 0, 4, KVW_TIER_DEVICE);
	store(4, 0, 5, 5, 20, KVW_TIER_DEVICE); /* behind a hole */
	store(5, 0, 5, 1, 20, KVW_TIER_DEVICE); /* without the front */
	hits = match(1, 5, 30);
	ck_assert_uint_eq(hits->count, 2);
	ck_assert_uint_eq(hits->blocks[3], 10);
	ck_assert_uint_eq(hits->tokens[3][KVW_TIER_DEVICE], 10 * BLOCK);
	ck_assert_uint_eq(hits->blocks[4], 4);
	ck_assert_uint_eq(hits->blocks[5], 0);
	ck_assert_uint_eq(match(1, 6, 30)->count, 0);
	ck_assert_uint_eq(match(1, 5, 0)->count, 0);
}
END_TEST

START_TEST(each_block_counts_for_its_fastest_tier)
{
	struct kvw_kvindex_hits *hits = NULL;

	store(1, 1, 9, 0, 8, KVW_TIER_HOST);
	store(1, 0, 9, 0, 3, KVW_TIER_DEVICE);
	store(1, 2, 9, 6, 4, KVW_TIER_DISK);
	store(1, 3, 9, 0, 12, KVW_TIER_REMOTE);
	hits = match(1, 9, 20);
	ck_assert_uint_eq(hits->count, 1);
	ck_assert_uint_eq(hits->blocks[1], 12);
	ck_assert_uint_eq(hits->tokens[1][KVW_TIER_DEVICE], 3 * BLOCK);
	ck_assert_uint_eq(hits->tokens[1][KVW_TIER_HOST], 5 * BLOCK);
	ck_assert_uint_eq(hits->tokens[1][KVW_TIER_DISK], 2 * BLOCK);
	ck_assert_uint_eq(hits->tokens[1][KVW_TIER_REMOTE], 2 * BLOCK);
	drop(1, 0, 9, 0, 3, KVW_TIER_DEVICE);
	hits = match(1, 9, 20);
	ck_assert_uint_eq(hits->tokens[1][KVW_TIER_DEVICE], 0);
	ck_assert_uint_eq(hits->tokens[1][KVW_TIER_HOST], 8 * BLOCK);
}
END_TEST

START_TEST(a_hash_stored_twice_takes_two_removals)
{
	store(1, 0, 2, 0, 5, KVW_TIER_DEVICE);
	store(1, 0, 2, 4, 1, KVW_TIER_DEVICE);
	store(1, 0, 2, 4, 1, KVW_TIER_DEVICE);
	ck_assert_uint_eq(stats_of().holders, 5);
	drop(1, 0, 2, 4, 1, KVW_TIER_DEVICE);
	drop(1, 0, 2, 4, 1, KVW_TIER_DEVICE);
	ck_assert_uint_eq(blocks_of(1, 2, 5), 5);
	drop(1, 0, 2, 4, 1, KVW_TIER_DEVICE);
	ck_assert_uint_eq(blocks_of(1, 2, 5), 4);
	ck_assert_uint_eq(stats_of().unknown_removes, 0);
	drop(1, 0, 2, 4, 1, KVW_TIER_DEVICE);
	drop(1, 0, 2, 0, 1, KVW_TIER_HOST);
	drop(1, 1, 2, 0, 1, KVW_TIER_DEVICE);
	drop(2, 0, 2, 0, 1, KVW_TIER_DEVICE);
	ck_assert_uint_eq(stats_of().unknown_removes, 4);
	ck_assert_uint_eq(blocks_of(1, 2, 5), 4);
}
END_TEST

START_TEST(sources_count_for_themselves)
{
	store(1, 0, 2, 0, 5, KVW_TIER_DEVICE);
	store(1, 1, 2, 0, 3, KVW_TIER_DEVICE);
	drop(1, 0, 2, 0, 5, KVW_TIER_DEVICE);
	ck_assert_uint_eq(blocks_of(1, 2, 5), 3);
	store(1, 0, 2, 0, 5, KVW_TIER_DEVICE);
	kvw_kvindex_cleared(kv, 1, 0, KVW_KVINDEX_ANY);
	ck_assert_uint_eq(blocks_of(1, 2, 5), 3);
	kvw_kvindex_cleared(kv, 1, KVW_KVINDEX_ANY, KVW_TIER_HOST);
	ck_assert_uint_eq(blocks_of(1, 2, 5), 3);
	kvw_kvindex_cleared(kv, 1, KVW_KVINDEX_ANY, KVW_TIER_DEVICE);
	ck_assert_uint_eq(blocks_of(1, 2, 5), 0);
	ck_assert_uint_eq(stats_of().clears, 3);
}
END_TEST

/* Hybrid models name one block by several hashes, one for each group of layers. */
START_TEST(two_hashes_of_one_key_hold_it_together)
{
	struct kvw_kvindex_from from = {1, 0};
	struct event e;

	event_make(&e, 4, 0, 2, KVW_TIER_DEVICE);
	e.keys[1] = e.keys[0];
	kvw_kvindex_stored(kv, from, &e.blocks);
	ck_assert_uint_eq(stats_of().blocks, 1);
	ck_assert_uint_eq(stats_of().holders, 2);
	drop(1, 0, 4, 0, 1, KVW_TIER_DEVICE);
	ck_assert_uint_eq(blocks_of(1, 4, 1), 1);
	drop(1, 0, 4, 1, 1, KVW_TIER_DEVICE);
	ck_assert_uint_eq(blocks_of(1, 4, 1), 0);
	ck_assert_uint_eq(stats_of().blocks, 0);
}
END_TEST

START_TEST(a_hash_may_come_to_mean_another_key)
{
	struct kvw_kvindex_from from = {1, 0};
	struct event e;

	store(1, 0, 4, 0, 1, KVW_TIER_DEVICE);
	event_make(&e, 4, 0, 1, KVW_TIER_DEVICE);
	e.keys[0] = 12345;
	kvw_kvindex_stored(kv, from, &e.blocks);
	ck_assert_uint_eq(blocks_of(1, 4, 1), 0);
	ck_assert_uint_eq(stats_of().holders, 1);
}
END_TEST

START_TEST(spaces_do_not_mix)
{
	struct kvw_kvindex_from from = {1, 0};
	uint64_t key = 0;
	struct event e;

	event_make(&e, 4, 0, 3, KVW_TIER_DEVICE);
	e.blocks.space = 2;
	kvw_kvindex_stored(kv, from, &e.blocks);
	ck_assert_uint_eq(match(1, 4, 3)->count, 0);
	ck_assert_uint_eq(match(0, 4, 3)->count, 0);
	ck_assert_uint_eq(match(2, 4, 3)->blocks[1], 3);
	ck_assert_int_eq(kvw_kvindex_key_of(kv, from, e.hashes[2], &key), KVW_OK);
	ck_assert_uint_eq(key, e.keys[2]);
}
END_TEST

/* Ranks that keep a slice of each block: it is there when all have it. */
START_TEST(required_sources_count_together)
{
	struct kvw_kvindex_hits *hits = NULL;

	kvw_kvindex_require(kv, 1, UINT32_MAX, 1 << 2 | 1 << 3);
	store(1, 2, 9, 0, 8, KVW_TIER_HOST);
	store(2, 2, 9, 0, 5, KVW_TIER_HOST);
	hits = match(1, 9, 10);
	ck_assert_uint_eq(hits->count, 1);
	ck_assert_uint_eq(hits->blocks[2], 5);
	store(1, 3, 9, 0, 4, KVW_TIER_DISK);
	store(1, 3, 9, 0, 6, KVW_TIER_REMOTE);
	store(1, 2, 9, 0, 1, KVW_TIER_DISK);
	hits = match(1, 9, 10);
	ck_assert_uint_eq(hits->blocks[1], 6);
	ck_assert_uint_eq(hits->tokens[1][KVW_TIER_HOST], 0);
	ck_assert_uint_eq(hits->tokens[1][KVW_TIER_DISK], 4 * BLOCK);
	ck_assert_uint_eq(hits->tokens[1][KVW_TIER_REMOTE], 2 * BLOCK);
	store(1, 0, 9, 0, 3, KVW_TIER_DEVICE); /* is not asked for the others */
	hits = match(1, 9, 10);
	ck_assert_uint_eq(hits->blocks[1], 6);
	ck_assert_uint_eq(hits->tokens[1][KVW_TIER_DEVICE], 3 * BLOCK);
	ck_assert_uint_eq(hits->tokens[1][KVW_TIER_DISK], BLOCK);
	kvw_kvindex_cleared(kv, 1, 2, KVW_KVINDEX_ANY);
	ck_assert_uint_eq(blocks_of(1, 9, 10), 3);
	kvw_kvindex_require(kv, 1, UINT32_MAX, 0);
	ck_assert_uint_eq(blocks_of(1, 9, 10), 6);
}
END_TEST

START_TEST(keys_of_parents_are_known_in_any_tier)
{
	struct kvw_kvindex_from from = {1, 2};
	uint64_t key = 99;
	struct event e;

	event_make(&e, 4, 0, 3, KVW_TIER_HOST);
	ck_assert_int_eq(kvw_kvindex_key_of(kv, from, e.hashes[0], &key), KVW_ENOTFOUND);
	ck_assert_uint_eq(key, 99);
	kvw_kvindex_stored(kv, from, &e.blocks);
	ck_assert_int_eq(kvw_kvindex_key_of(kv, from, e.hashes[1], &key), KVW_OK);
	ck_assert_uint_eq(key, e.keys[1]);
	from.source = 1;
	ck_assert_int_eq(kvw_kvindex_key_of(kv, from, e.hashes[1], &key), KVW_ENOTFOUND);
	from.source = 2;
	kvw_kvindex_cleared(kv, 1, 2, KVW_TIER_HOST);
	ck_assert_int_eq(kvw_kvindex_key_of(kv, from, e.hashes[1], &key), KVW_ENOTFOUND);
}
END_TEST

/* A purge leaves all memory as it is: what it made stale is only counted, and reclaimed later. */
START_TEST(purge_visits_nothing_and_is_reclaimed_later)
{
	struct kvw_kvindex_stats before;
	struct kvw_kvindex_stats after;

	create_again(8 << 20);
	for (uint64_t chain = 1; chain <= 300; chain++) {
		store(1, 0, chain, 0, MOST, KVW_TIER_DEVICE);
		store(2, 0, chain, 0, 9, KVW_TIER_HOST);
	}
	before = stats_of();
	kvw_kvindex_purge(kv, 1);
	after = stats_of();
	ck_assert_uint_eq(blocks_of(1, 7, MOST), 0);
	ck_assert_uint_eq(blocks_of(2, 7, MOST), 9);
	ck_assert_uint_eq(after.holders, before.holders);
	ck_assert_uint_eq(after.bytes, before.bytes);
	ck_assert_uint_eq(after.stale, 300 * MOST);
	ck_assert_uint_eq(after.purges, 1);

	store(1, 0, 7, 0, 2, KVW_TIER_DEVICE); /* after the purge: known again */
	ck_assert_uint_eq(blocks_of(1, 7, MOST), 2);
	for (unsigned i = 0; i < 6; i++) /* 4,096 steps each */
		kvw_kvindex_tick(kv, 0);
	after = stats_of();
	ck_assert_uint_eq(after.stale, 0);
	ck_assert_uint_eq(after.holders, 300 * 9 + 2);
	ck_assert_uint_eq(after.blocks, 300 * 9);
	ck_assert_uint_lt(after.bytes, before.bytes);
	ck_assert_uint_eq(after.dropped, 0);
	ck_assert_uint_eq(blocks_of(1, 7, MOST), 2);
	ck_assert_uint_eq(blocks_of(2, 7, MOST), 9);
}
END_TEST

/* Generations are counted in 16 bits: what was purged stays purged when they come around. */
START_TEST(generations_may_come_around)
{
	store(1, 0, 7, 0, 20, KVW_TIER_DEVICE);
	for (unsigned i = 0; i < 65535 * 2; i++) {
		kvw_kvindex_cleared(kv, 1, 0, KVW_TIER_DEVICE);
		ck_assert_uint_eq(blocks_of(1, 7, 1), 0);
	}
	ck_assert_uint_eq(stats_of().holders, 0);
}
END_TEST

START_TEST(every_worker_may_hold_a_block)
{
	struct kvw_kvindex_hits *hits = NULL;

	create_again(16 << 20);
	for (uint32_t worker = 0; worker < KVW_MAX_WORKERS; worker++)
		store(worker, worker % KVW_KVINDEX_SOURCES, 3, 0, 4, KVW_TIER_DEVICE);
	hits = match(1, 3, 6);
	ck_assert_uint_eq(hits->count, KVW_MAX_WORKERS);
	for (uint32_t worker = 0; worker < KVW_MAX_WORKERS; worker++)
		ck_assert_uint_eq(hits->blocks[worker], 4);
	ck_assert_uint_eq(stats_of().blocks, 4);
	for (uint32_t worker = 0; worker < KVW_MAX_WORKERS; worker += 2)
		drop(worker, worker % KVW_KVINDEX_SOURCES, 3, 2, 2, KVW_TIER_DEVICE);
	hits = match(1, 3, 6);
	for (uint32_t worker = 0; worker < KVW_MAX_WORKERS; worker++)
		ck_assert_uint_eq(hits->blocks[worker], worker % 2 == 0 ? 2 : 4);
	for (uint32_t worker = 0; worker < KVW_MAX_WORKERS; worker++)
		drop(worker, worker % KVW_KVINDEX_SOURCES, 3, 0, worker % 2 == 0 ? 2 : 4,
			KVW_TIER_DEVICE);
	ck_assert_uint_eq(stats_of().holders, 0);
	ck_assert_uint_eq(stats_of().blocks, 0);
	ck_assert_uint_eq(stats_of().unknown_removes, 0);
}
END_TEST

START_TEST(without_room_the_oldest_goes)
{
	struct kvw_kvindex_stats stats;
	uint64_t chains = 1000;
	uint64_t kept = 0;

	create_again(KVW_KVINDEX_MIN_BYTES);
	for (uint64_t chain = 1; chain <= chains; chain++)
		store(1, 0, chain, 0, MOST, KVW_TIER_DEVICE);
	stats = stats_of();
	ck_assert_uint_le(stats.bytes_limit, KVW_KVINDEX_MIN_BYTES);
	ck_assert_uint_le(stats.bytes, stats.bytes_limit);
	ck_assert_uint_gt(stats.holders, 5000);
	ck_assert_uint_eq(stats.holders + stats.dropped, chains * MOST);
	kept = stats.holders / MOST;
	for (uint64_t chain = 1; chain <= chains; chain++)
		ck_assert_uint_eq(blocks_of(1, chain, MOST), chain > chains - kept ? MOST
							     : chain == chains - kept
								     ? stats.holders % MOST
								     : 0);
}
END_TEST

START_TEST(what_is_stale_goes_before_the_oldest)
{
	create_again(KVW_KVINDEX_MIN_BYTES);
	store(2, 0, 5000, 0, MOST, KVW_TIER_DEVICE);
	for (uint64_t chain = 1; chain <= 70; chain++)
		store(1, 0, chain, 0, MOST, KVW_TIER_DEVICE);
	kvw_kvindex_purge(kv, 1);
	for (uint64_t chain = 1; chain <= 70; chain++)
		store(1, 0, chain, 0, MOST, KVW_TIER_DEVICE);
	ck_assert_uint_eq(stats_of().dropped, 0);
	ck_assert_uint_eq(blocks_of(2, 5000, MOST), MOST);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("kvindex");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, longest_run_from_the_front);
	tcase_add_test(tcase, each_block_counts_for_its_fastest_tier);
	tcase_add_test(tcase, a_hash_stored_twice_takes_two_removals);
	tcase_add_test(tcase, sources_count_for_themselves);
	tcase_add_test(tcase, two_hashes_of_one_key_hold_it_together);
	tcase_add_test(tcase, a_hash_may_come_to_mean_another_key);
	tcase_add_test(tcase, spaces_do_not_mix);
	tcase_add_test(tcase, required_sources_count_together);
	tcase_add_test(tcase, keys_of_parents_are_known_in_any_tier);
	tcase_add_test(tcase, purge_visits_nothing_and_is_reclaimed_later);
	tcase_add_test(tcase, generations_may_come_around);
	tcase_add_test(tcase, every_worker_may_hold_a_block);
	tcase_add_test(tcase, without_room_the_oldest_goes);
	tcase_add_test(tcase, what_is_stale_goes_before_the_oldest);
	tcase_set_timeout(tcase, 120);
	return run_tcase("kvindex", tcase);
}
