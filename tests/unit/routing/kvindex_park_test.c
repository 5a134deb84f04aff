/*
 * kvindex_park_test.c - blocks whose parent is stored after them, or never.
 */
#include <stdlib.h>
#include <string.h>

#include "routing/kvindex.h"
#include "support.h"
#include "tests/unit/suite.h"

#define SECOND INT64_C(1000000000)
#define BLOCK  16

/* A payload is the number of a chain; key i of a chain follows from key i - 1 and that number. */
struct asked {
	unsigned calls;
	bool refuse;
};

static uint64_t next_key(uint64_t parent, uint64_t chain)
{
	return (parent ^ chain) * UINT64_C(0x9E3779B97F4A7C15) + 1;
}

static bool compute(void *ctx, const struct kvw_kvindex_parked *parked, uint64_t *keys)
{
	struct asked *seen = ctx;
	uint64_t key = parked->parent_key;
	uint64_t chain = 0;

	seen->calls++;
	ck_assert_uint_eq(parked->payload_bytes, sizeof(chain));
	memcpy(&chain, parked->payload, sizeof(chain));
	for (uint32_t i = 0; i < parked->count; i++)
		keys[i] = key = next_key(key, chain);
	return !seen->refuse;
}

static struct kvw_kvindex *kv;
static struct asked asked;

static void create(uint64_t park_bytes)
{
	struct kvw_kvindex_options options = {
		.park_bytes = park_bytes,
		.park_ns = 10 * SECOND,
		.seed = 3,
		.keys = compute,
		.keys_ctx = &asked,
	};

	ck_assert_int_eq(kvw_kvindex_create(&options, &kv), KVW_OK);
}

static void setup(void)
{
	asked = (struct asked){0};
	create(1 << 20);
}

static void teardown(void)
{
	kvw_kvindex_destroy(kv);
}

/* With other room for parked blocks than setup() gave. */
static void create_again(uint64_t park_bytes)
{
	kvw_kvindex_destroy(kv);
	create(park_bytes);
}

static const struct kvw_kvindex_from worker_one = {1, 0};

/* Engine hash of block i of a chain; block 0's parent is none. */
static uint64_t hash_of(uint64_t chain, uint32_t i)
{
	return chain << 20 | (i + 1);
}

static void fill(uint64_t *hashes, uint64_t chain, uint32_t first, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		hashes[i] = hash_of(chain, first + i);
}

static void park(uint64_t chain, uint32_t first, uint32_t count, int64_t now_ns)
{
	uint64_t hashes[32];
	struct kvw_kvindex_blocks blocks = {1, KVW_TIER_DEVICE, count, hashes, NULL};

	fill(hashes, chain, first, count);
	kvw_kvindex_park(
		kv, worker_one, &blocks, hash_of(chain, first - 1), &chain, sizeof(chain), now_ns);
}

/* Stores the beginning of a chain, whose keys are known. */
static void store(uint64_t chain, uint32_t count)
{
	uint64_t hashes[32];
	uint64_t keys[32];
	struct kvw_kvindex_blocks blocks = {1, KVW_TIER_DEVICE, count, hashes, keys};
	uint64_t key = 0;

	fill(hashes, chain, 0, count);
	for (uint32_t i = 0; i < count; i++)
		keys[i] = key = next_key(key, chain);
	kvw_kvindex_stored(kv, worker_one, &blocks);
}

static void drop(uint64_t chain, uint32_t first, uint32_t count)
{
	uint64_t hashes[32];
	struct kvw_kvindex_blocks blocks = {1, KVW_TIER_DEVICE, count, hashes, NULL};

	fill(hashes, chain, first, count);
	kvw_kvindex_removed(kv, worker_one, &blocks);
}

static uint32_t held(uint64_t chain)
{
	static struct kvw_kvindex_hits hits;
	uint64_t keys[64];
	uint64_t key = 0;

	for (uint32_t i = 0; i < 64; i++)
		keys[i] = key = next_key(key, chain);
	kvw_kvindex_match(kv, 1, keys, 64, BLOCK, &hits);
	return hits.blocks[1];
}

static struct kvw_kvindex_stats stats(void)
{
	struct kvw_kvindex_stats out;

	kvw_kvindex_stats(kv, &out);
	return out;
}

static void check_empty(uint64_t dropped)
{
	ck_assert_uint_eq(stats().parked, 0);
	ck_assert_uint_eq(stats().parked_bytes, 0);
	ck_assert_uint_eq(stats().parked_dropped, dropped);
}

START_TEST(children_wait_for_their_parent)
{
	park(5, 12, 4, 0); /* grandchildren first */
	park(5, 4, 8, SECOND);
	park(6, 4, 8, SECOND);
	ck_assert_uint_eq(held(5), 0);
	ck_assert_uint_eq(stats().parked, 3);
	ck_assert_uint_gt(stats().parked_bytes, 0);
	store(5, 4);
	ck_assert_uint_eq(held(5), 16);
	ck_assert_uint_eq(held(6), 0);
	ck_assert_uint_eq(asked.calls, 2);
	ck_assert_uint_eq(stats().parked, 1);
	store(6, 4);
	ck_assert_uint_eq(held(6), 12);
	check_empty(0);
}
END_TEST

/* Each record is woken by the one before: depth must not cost stack. */
START_TEST(a_long_chain_backwards)
{
	create_again(64 << 20);
	for (uint32_t i = 5000; i > 0; i--)
		park(5, i, 1, 0);
	store(5, 1);
	ck_assert_uint_eq(asked.calls, 5000);
	ck_assert_uint_eq(stats().holders, 5001);
	ck_assert_uint_eq(held(5), 64);
	check_empty(0);
}
END_TEST

START_TEST(a_known_parent_needs_no_waiting)
{
	store(5, 4);
	park(5, 4, 2, 0);
	ck_assert_uint_eq(held(5), 6);
	check_empty(0);
}
END_TEST

START_TEST(what_is_removed_while_it_waits_stays_removed)
{
	park(5, 4, 8, 0);
	park(5, 4, 2, 0); /* blocks 4 and 5 once more */
	drop(5, 9, 1);
	drop(5, 4, 1);
	ck_assert_uint_eq(stats().unknown_removes, 0);
	drop(5, 9, 1);
	ck_assert_uint_eq(stats().unknown_removes, 1);
	store(5, 4);
	ck_assert_uint_eq(held(5), 9);
	drop(5, 5, 1);
	ck_assert_uint_eq(held(5), 9);
	drop(5, 4, 1);
	ck_assert_uint_eq(held(5), 4);
	check_empty(0);
}
END_TEST

START_TEST(clears_and_purges_count_for_parked_ones)
{
	park(5, 4, 8, 0);
	kvw_kvindex_cleared(kv, 1, 0, KVW_TIER_DEVICE);
	store(5, 4);
	ck_assert_uint_eq(held(5), 4);
	check_empty(1);
	park(6, 4, 8, 0);
	kvw_kvindex_purge(kv, 1);
	store(6, 4);
	ck_assert_uint_eq(held(6), 4);
	ck_assert_uint_eq(asked.calls, 0);
	check_empty(2);
}
END_TEST

/* A removal is of the tier and the generation in which the block was stored. */
START_TEST(other_removals_do_not_count_for_parked_ones)
{
	uint64_t hash = hash_of(5, 5);
	struct kvw_kvindex_blocks host = {1, KVW_TIER_HOST, 1, &hash, NULL};

	park(5, 4, 8, 0);
	kvw_kvindex_removed(kv, worker_one, &host);
	ck_assert_uint_eq(stats().unknown_removes, 1);
	store(5, 4);
	ck_assert_uint_eq(held(5), 12);
	park(6, 4, 8, 0);
	kvw_kvindex_cleared(kv, 1, KVW_KVINDEX_ANY, KVW_KVINDEX_ANY);
	drop(6, 5, 1);
	ck_assert_uint_eq(stats().unknown_removes, 2);
}
END_TEST

START_TEST(sources_wait_for_themselves)
{
	uint64_t hashes[4];
	uint64_t keys[4] = {1, 2, 3, 4};
	struct kvw_kvindex_blocks blocks = {1, KVW_TIER_DEVICE, 4, hashes, keys};

	park(5, 4, 8, 0);
	fill(hashes, 5, 0, 4);
	kvw_kvindex_stored(kv, (struct kvw_kvindex_from){1, 1}, &blocks);
	kvw_kvindex_stored(kv, (struct kvw_kvindex_from){2, 0}, &blocks);
	ck_assert_uint_eq(asked.calls, 0);
	ck_assert_uint_eq(stats().parked, 1);
}
END_TEST

START_TEST(waiting_ends_in_time)
{
	park(5, 4, 8, 0);
	park(6, 4, 8, 3 * SECOND);
	kvw_kvindex_tick(kv, 10 * SECOND - 1);
	ck_assert_uint_eq(stats().parked, 2);
	kvw_kvindex_tick(kv, 10 * SECOND);
	ck_assert_uint_eq(stats().parked, 1);
	ck_assert_uint_eq(stats().parked_dropped, 1);
	store(5, 4);
	ck_assert_uint_eq(held(5), 4);
	park(7, 4, 8, 14 * SECOND);
	ck_assert_uint_eq(stats().parked, 1);
	ck_assert_uint_eq(stats().parked_dropped, 2);
}
END_TEST

START_TEST(room_is_bounded)
{
	uint64_t hashes[32] = {0};
	char payload[9000] = {0};
	struct kvw_kvindex_blocks blocks = {1, KVW_TIER_DEVICE, 4, hashes, NULL};
	uint64_t parked = 0;

	create_again(8192);
	for (uint64_t chain = 1; chain <= 100; chain++) {
		park(chain, 4, 8, 0);
		ck_assert_uint_le(stats().parked_bytes, 8192);
	}
	parked = stats().parked;
	ck_assert_uint_ge(parked, 5);
	ck_assert_uint_eq(stats().parked_dropped, 100 - parked);
	kvw_kvindex_park(kv, worker_one, &blocks, 77, payload, sizeof(payload), 0);
	ck_assert_uint_eq(stats().parked, parked);
	for (uint64_t chain = 1; chain <= 100; chain++) {
		store(chain, 4);
		ck_assert_uint_eq(held(chain), chain > 100 - parked ? 12 : 4);
	}
	check_empty(101 - parked);
}
END_TEST

START_TEST(without_room_or_answer_all_are_dropped)
{
	asked.refuse = true;
	create_again(0);
	park(5, 4, 8, 0);
	drop(5, 4, 1);
	store(5, 4);
	ck_assert_uint_eq(held(5), 4);
	check_empty(1);
	create_again(1 << 20);
	park(5, 4, 8, 0);
	store(5, 4);
	ck_assert_uint_eq(held(5), 4);
	ck_assert_uint_eq(asked.calls, 1);
	check_empty(1);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("park");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, children_wait_for_their_parent);
	tcase_add_test(tcase, a_long_chain_backwards);
	tcase_add_test(tcase, a_known_parent_needs_no_waiting);
	tcase_add_test(tcase, what_is_removed_while_it_waits_stays_removed);
	tcase_add_test(tcase, clears_and_purges_count_for_parked_ones);
	tcase_add_test(tcase, other_removals_do_not_count_for_parked_ones);
	tcase_add_test(tcase, sources_wait_for_themselves);
	tcase_add_test(tcase, waiting_ends_in_time);
	tcase_add_test(tcase, room_is_bounded);
	tcase_add_test(tcase, without_room_or_answer_all_are_dropped);
	tcase_set_timeout(tcase, 120);
	return run_tcase("kvindex_park", tcase);
}
