/*
 * index_test.c - one promise of the index after another.
 */
#include "index/entry.h"
#include "support.h"
#include "tests/unit/suite.h"

#define NONE UINT64_MAX

static struct bed bed;

static void open_bed(uint32_t entries, uint64_t capacity, uint64_t tenant_limit)
{
	bed_open(&bed, &(struct bed_options){.max_entries = entries,
			       .capacity = capacity,
			       .tenant_limit = tenant_limit});
}

static void put(uint64_t number, uint64_t parent, uint64_t charge)
{
	const struct kvt_entry_info info = info_of(charge);

	ck_assert_int_eq(bed_put(&bed, number, parent, &info), KVT_OK);
}

START_TEST(nothing_shows_before_publish)
{
	const struct kvt_key key = key_of(1);
	const struct kvt_entry_info info = info_of(10);
	uint32_t entry, other;

	open_bed(16, 100, 0);
	ck_assert_int_eq(kvt_index_insert(bed.index, &key, NULL, &info, &entry), KVT_OK);
	ck_assert_int_eq(kvt_index_match(bed.index, &key, 1), 0);
	ck_assert_int_eq(kvt_index_hold(bed.index, &key, true, &other), KVT_MISS);
	ck_assert_int_eq(kvt_index_insert(bed.index, &key, NULL, &info, &other), KVT_EXISTS);
	ck_assert_uint_eq(other, entry);
	ck_assert_int_eq(kvt_index_publish(bed.index, entry), KVT_OK);
	ck_assert_int_eq(kvt_index_match(bed.index, &key, 1), 1);
	kvt_index_release(bed.index, entry);
	ck_assert_uint_eq(bed.gone, 0);
	bed_close(&bed);
	ck_assert_uint_eq(bed.gone, 1);
}
END_TEST

START_TEST(a_discarded_chunk_was_never_there)
{
	const struct kvt_key key = key_of(1);
	const struct kvt_entry_info info = info_of(10);
	struct kvt_index_stats stats;
	uint32_t entry;

	open_bed(16, 100, 0);
	ck_assert_int_eq(kvt_index_insert(bed.index, &key, NULL, &info, &entry), KVT_OK);
	kvt_index_discard(bed.index, entry);
	ck_assert_uint_eq(bed.gone, 1);
	kvt_index_stats(bed.index, &stats);
	ck_assert_uint_eq(stats.used, 0);
	ck_assert_uint_eq(stats.held, 0);
	put(1, NONE, 10);
	ck_assert(bed_has(&bed, 1));
	bed_close(&bed);
}
END_TEST

START_TEST(erased_while_filling)
{
	const struct kvt_key key = key_of(1);
	const struct kvt_entry_info info = info_of(10);
	uint32_t first, second;

	open_bed(16, 100, 0);
	ck_assert_int_eq(kvt_index_insert(bed.index, &key, NULL, &info, &first), KVT_OK);
	ck_assert_uint_eq(kvt_index_erase(bed.index, &key, 1), 1);
	ck_assert_uint_eq(bed.gone, 0); /* its filler still writes into its place */
	ck_assert_int_eq(kvt_index_insert(bed.index, &key, NULL, &info, &second), KVT_OK);
	ck_assert_uint_ne(first, second);
	ck_assert_int_eq(kvt_index_publish(bed.index, first), KVT_MISS);
	kvt_index_release(bed.index, first);
	ck_assert_uint_eq(bed.gone, 1);
	kvt_index_discard(bed.index, second);
	ck_assert_uint_eq(bed.gone, 2);
	bed_close(&bed);
	ck_assert_uint_eq(bed.gone, 2);
}
END_TEST

START_TEST(an_entry_says_what_it_was_given)
{
	const struct kvt_key key = key_of(7);
	const struct kvt_entry_info given = {
		.bytes = (5ull << 32) + 77,
		.charge = (6ull << 32) + 99,
		.tenant = tenant_of(3),
		.expires_wall_ns = 5000 * SECOND,
		.ttl_ns = 1800 * SECOND,
		.tokens = 256,
		.cost_ns = 1 << 20,
		.place = {1, UINT64_MAX, 3, 4},
	};
	const uint64_t place[4] = {9, 8, 7, 6};
	struct kvt_entry_info info;
	uint32_t entry;

	open_bed(16, 1ull << 40, 0);
	ck_assert_int_eq(kvt_index_insert(bed.index, &key, NULL, &given, &entry), KVT_OK);
	kvt_index_info(bed.index, entry, &info);
	ck_assert(same_info(&info, &given));
	ck_assert_mem_eq(kvt_index_key(bed.index, entry), &key, sizeof(key));
	kvt_index_place(bed.index, entry, place);
	kvt_index_info(bed.index, entry, &info);
	ck_assert_mem_eq(info.place, place, sizeof(place));
	kvt_index_discard(bed.index, entry);
	ck_assert(same_info(&bed.last_info, &info));
	bed_close(&bed);
}
END_TEST

START_TEST(ttls_are_kept_in_four_bytes)
{
	static const uint64_t exact[] = {0, 1, 268435455, SECOND, 1800 * SECOND, 86400 * SECOND,
		365 * 86400 * SECOND, 1500000000};
	uint64_t state = 1;

	for (size_t i = 0; i < sizeof(exact) / sizeof(exact[0]); i++)
		ck_assert_uint_eq(kvt_ttl_ns(kvt_ttl_pack(exact[i])), exact[i]);
	for (int i = 0; i < 10000; i++) {
		uint64_t ns = test_random(&state) >> (i % 64), kept = kvt_ttl_ns(kvt_ttl_pack(ns));

		EXPECT(kept <= ns && ns - kept <= ns / 10000000);
	}
}
END_TEST

START_TEST(only_leaves_are_evicted)
{
	open_bed(16, 40, 0);
	put(1, NONE, 10);
	put(2, 1, 10);
	put(3, 2, 10);
	put(4, 3, 10);
	put(5, NONE, 10);
	ck_assert(!bed_has(&bed, 4));
	ck_assert(bed_has(&bed, 3));
	put(6, NONE, 20);
	ck_assert(!bed_has(&bed, 3) && !bed_has(&bed, 2));
	ck_assert(bed_has(&bed, 1));
	bed_close(&bed);
}
END_TEST

START_TEST(a_parent_makes_no_room_for_its_child)
{
	const struct kvt_entry_info info = info_of(10);

	open_bed(16, 10, 0);
	put(1, NONE, 10);
	ck_assert_int_eq(bed_put(&bed, 2, 1, &info), KVT_FULL);
	ck_assert(bed_has(&bed, 1));
	ck_assert_int_eq(bed_put(&bed, 3, NONE, &info), KVT_OK);
	ck_assert(!bed_has(&bed, 1));
	bed_close(&bed);
}
END_TEST

START_TEST(holds_and_pins_keep)
{
	const struct kvt_entry_info info = info_of(10);
	const struct kvt_key keys[2] = {key_of(1), key_of(2)};
	struct kvt_index_stats stats;
	uint32_t entry;

	open_bed(16, 20, 0);
	put(1, NONE, 10);
	put(2, NONE, 10);
	ck_assert_int_eq(kvt_index_hold(bed.index, &keys[0], false, &entry), KVT_OK);
	ck_assert_uint_eq(kvt_index_pin(bed.index, &keys[1], 1, true), 1);
	ck_assert_uint_eq(kvt_index_pin(bed.index, &keys[1], 1, true), 1);
	kvt_index_stats(bed.index, &stats);
	ck_assert_uint_eq(stats.held, 1);
	ck_assert_uint_eq(stats.pinned, 1);
	ck_assert_int_eq(bed_put(&bed, 3, NONE, &info), KVT_FULL);
	ck_assert(!kvt_index_evict(bed.index));
	kvt_index_release(bed.index, entry);
	ck_assert_int_eq(bed_put(&bed, 3, NONE, &info), KVT_OK);
	ck_assert(!bed_has(&bed, 1) && bed_has(&bed, 2));
	ck_assert_uint_eq(kvt_index_pin(bed.index, keys, 2, false), 1);
	ck_assert(kvt_index_evict(bed.index) && kvt_index_evict(bed.index));
	kvt_index_stats(bed.index, &stats);
	ck_assert_uint_eq(stats.pinned + stats.held + stats.entries + stats.used, 0);
	bed_close(&bed);
}
END_TEST

START_TEST(erasing_leaves_holders_alone)
{
	const struct kvt_key key = key_of(1);
	uint32_t first, again;

	open_bed(16, 100, 0);
	put(1, NONE, 10);
	ck_assert_int_eq(kvt_index_hold(bed.index, &key, true, &first), KVT_OK);
	ck_assert_int_eq(kvt_index_hold(bed.index, &key, true, &again), KVT_OK);
	ck_assert_uint_eq(kvt_index_erase(bed.index, &key, 1), 1);
	ck_assert(!bed_has(&bed, 1));
	ck_assert_uint_eq(kvt_index_erase(bed.index, &key, 1), 0);
	put(1, NONE, 20);
	ck_assert(bed_has(&bed, 1));
	ck_assert_mem_eq(kvt_index_key(bed.index, first), &key, sizeof(key));
	kvt_index_release(bed.index, first);
	ck_assert_uint_eq(bed.gone, 0);
	kvt_index_release(bed.index, again);
	ck_assert_uint_eq(bed.gone, 1);
	ck_assert_uint_eq(bed.last_info.charge, 10);
	ck_assert(bed_has(&bed, 1));
	bed_close(&bed);
}
END_TEST

START_TEST(children_wait_for_their_parent)
{
	struct kvt_key parent = key_of(1), told;
	struct kvt_index_stats stats;
	uint32_t entry;

	open_bed(16, 40, 0);
	put(2, 1, 10);
	put(3, 1, 10);
	kvt_index_stats(bed.index, &stats);
	ck_assert_uint_eq(stats.orphans, 2);
	put(1, NONE, 10); /* the oldest use is that of 2 */
	kvt_index_stats(bed.index, &stats);
	ck_assert_uint_eq(stats.orphans, 0);
	ck_assert(kvt_index_evict(bed.index));
	ck_assert(!bed_has(&bed, 2) && bed_has(&bed, 1));
	ck_assert_uint_eq(kvt_index_erase(bed.index, &parent, 1), 1);
	kvt_index_stats(bed.index, &stats);
	ck_assert_uint_eq(stats.orphans, 1);
	ck_assert(bed_has(&bed, 3));
	parent = key_of(3);
	ck_assert_int_eq(kvt_index_hold(bed.index, &parent, false, &entry), KVT_OK);
	ck_assert(kvt_index_parent(bed.index, entry, &told));
	parent = key_of(1);
	ck_assert_mem_eq(&told, &parent, sizeof(told));
	kvt_index_release(bed.index, entry);
	put(1, NONE, 10);
	put(4, NONE, 20);
	put(5, NONE, 10); /* 3 goes, not the 1 that came back above it */
	ck_assert(!bed_has(&bed, 3) && bed_has(&bed, 1));
	bed_close(&bed);
}
END_TEST

START_TEST(a_circle_of_parents_can_still_leave)
{
	open_bed(16, 40, 0);
	put(1, 3, 10);
	put(2, 1, 10);
	put(3, 2, 10);
	put(4, 4, 10);
	for (int i = 0; i < 4; i++)
		ck_assert(kvt_index_evict(bed.index));
	ck_assert_uint_eq(bed.gone, 4);
	bed_close(&bed);
}
END_TEST

START_TEST(what_expires_is_a_miss_at_once)
{
	struct kvt_entry_info info = info_of(10);
	const struct kvt_key key = key_of(1);
	struct kvt_index_stats stats;
	uint32_t entry;

	open_bed(16, 100, 0);
	info.ttl_ns = 60 * SECOND;
	info.expires_wall_ns = bed.wall_ns + 60 * SECOND;
	ck_assert_int_eq(bed_put(&bed, 1, NONE, &info), KVT_OK);
	ck_assert_int_eq(bed_put(&bed, 2, NONE, &info), KVT_OK);
	put(3, NONE, 10);
	bed.wall_ns += 59 * SECOND;
	ck_assert_int_eq(kvt_index_hold(bed.index, &key, true, &entry), KVT_OK); /* prolongs */
	kvt_index_release(bed.index, entry);
	ck_assert(bed_has(&bed, 2));
	bed.wall_ns += 1 * SECOND;
	ck_assert(bed_has(&bed, 1) && !bed_has(&bed, 2));
	ck_assert_uint_eq(kvt_index_expire(bed.index, 100), 1);
	bed.wall_ns += 59 * SECOND;
	ck_assert_int_eq(kvt_index_hold(bed.index, &key, false, &entry), KVT_MISS);
	info.expires_wall_ns = bed.wall_ns + 60 * SECOND;
	ck_assert_int_eq(bed_put(&bed, 1, NONE, &info), KVT_OK); /* its rest is not in the way */
	ck_assert(bed_has(&bed, 1));
	kvt_index_stats(bed.index, &stats);
	ck_assert_uint_eq(stats.expired, 2);
	ck_assert_uint_eq(stats.entries, 2);
	ck_assert_uint_eq(kvt_index_expire(bed.index, 100), 0);
	bed_close(&bed);
}
END_TEST

START_TEST(a_tenant_pays_for_itself)
{
	struct kvt_entry_info one = info_of(10), two = info_of(10);

	open_bed(16, 1000, 20);
	one.tenant = tenant_of(1);
	two.tenant = tenant_of(2);
	ck_assert_int_eq(bed_put(&bed, 1, NONE, &one), KVT_OK);
	ck_assert_int_eq(bed_put(&bed, 2, NONE, &two), KVT_OK);
	ck_assert_int_eq(bed_put(&bed, 3, NONE, &two), KVT_OK);
	ck_assert_int_eq(bed_put(&bed, 4, NONE, &two), KVT_OK);
	ck_assert(bed_has(&bed, 1) && !bed_has(&bed, 2) && bed_has(&bed, 3) && bed_has(&bed, 4));
	two.charge = 21;
	ck_assert_int_eq(bed_put(&bed, 5, NONE, &two), KVT_FULL);
	ck_assert_uint_eq(kvt_index_erase_tenant(bed.index, &two.tenant), 2);
	ck_assert(bed_has(&bed, 1) && !bed_has(&bed, 3));
	ck_assert_uint_eq(kvt_index_erase_all(bed.index), 1);
	bed_close(&bed);
	ck_assert_uint_eq(bed.gone, 4);
}
END_TEST

START_TEST(entries_have_a_limit_of_their_own)
{
	open_bed(3, 1000, 0);
	for (uint64_t i = 0; i < 10; i++)
		put(i, NONE, 10);
	ck_assert_uint_eq(bed.gone, 7);
	ck_assert(bed_has(&bed, 9) && bed_has(&bed, 8) && bed_has(&bed, 7));
	bed_close(&bed);
}
END_TEST

START_TEST(uses_are_reported_deepest_first)
{
	struct kvt_key chain[3] = {key_of(1), key_of(2), key_of(3)};
	uint32_t entries[3];

	open_bed(16, 50, 0);
	for (uint64_t i = 1; i < 6; i++)
		put(i, NONE, 10); /* no parents: order of uses alone decides */
	ck_assert_uint_eq(kvt_index_hold_chain(bed.index, chain, 3, true, entries), 3);
	for (int i = 0; i < 3; i++)
		kvt_index_release(bed.index, entries[i]);
	for (int i = 0; i < 3; i++)
		ck_assert(kvt_index_evict(bed.index));
	ck_assert(!bed_has(&bed, 4) && !bed_has(&bed, 5) && !bed_has(&bed, 3));
	ck_assert(kvt_index_evict(bed.index));
	ck_assert(!bed_has(&bed, 2) && bed_has(&bed, 1));
	bed_close(&bed);
}
END_TEST

START_TEST(match_stops_at_the_first_gap)
{
	struct kvt_key chain[100];

	open_bed(200, 100000, 0);
	for (uint64_t i = 0; i < 100; i++) {
		chain[i] = key_of(i);
		put(i, i == 0 ? NONE : i - 1, 10);
	}
	ck_assert_uint_eq(kvt_index_match(bed.index, chain, 100), 100);
	ck_assert_uint_eq(kvt_index_match(bed.index, chain, 0), 0);
	ck_assert_uint_eq(kvt_index_erase(bed.index, &chain[63], 1), 1);
	ck_assert_uint_eq(kvt_index_match(bed.index, chain, 100), 63);
	ck_assert_uint_eq(kvt_index_match(bed.index, chain + 64, 36), 36);
	bed_close(&bed);
}
END_TEST

START_TEST(keys_are_compared_whole)
{
	struct kvt_key key = key_of(1);
	uint32_t entry;

	open_bed(16, 100, 0);
	put(1, NONE, 10);
	for (int bit = 0; bit < KVT_KEY_BYTES * 8; bit++) {
		key.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ck_assert_uint_eq(kvt_index_match(bed.index, &key, 1), 0);
		ck_assert_int_eq(kvt_index_hold(bed.index, &key, true, &entry), KVT_MISS);
		key.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	ck_assert_uint_eq(kvt_index_match(bed.index, &key, 1), 1);
	bed_close(&bed);
}
END_TEST

START_TEST(a_dropped_chunk_stays_with_its_holder)
{
	const struct kvt_key key = key_of(1);
	struct kvt_index_stats stats;
	uint32_t entry;

	open_bed(16, 100, 0);
	put(1, NONE, 10);
	ck_assert_int_eq(kvt_index_hold(bed.index, &key, true, &entry), KVT_OK);
	kvt_index_drop(bed.index, entry);
	kvt_index_drop(bed.index, entry);
	ck_assert(!bed_has(&bed, 1));
	ck_assert_uint_eq(bed.gone, 0);
	kvt_index_release(bed.index, entry);
	ck_assert_uint_eq(bed.gone, 1);
	kvt_index_stats(bed.index, &stats);
	ck_assert_uint_eq(stats.dropped, 1);
	bed_close(&bed);
}
END_TEST

START_TEST(a_walk_meets_each_live_entry_once)
{
	uint32_t cursor = 0, entry, met = 0, seen[8] = {0};

	open_bed(16, 100, 0);
	for (uint64_t i = 0; i < 8; i++)
		put(i, NONE, 10);
	ck_assert_uint_eq(kvt_index_erase(bed.index, &(struct kvt_key){{0}}, 1), 0);
	while (kvt_index_next(bed.index, &cursor, &entry)) {
		met++;
		for (uint64_t i = 0; i < 8; i++) {
			const struct kvt_key key = key_of(i);

			if (memcmp(kvt_index_key(bed.index, entry), &key, sizeof(key)) == 0)
				seen[i]++;
		}
		kvt_index_release(bed.index, entry);
	}
	ck_assert_uint_eq(met, 8);
	ck_assert_uint_eq(cursor, 0);
	for (int i = 0; i < 8; i++)
		ck_assert_uint_eq(seen[i], 1);
	bed_close(&bed);
}
END_TEST

START_TEST(a_large_limit_costs_nothing_until_used)
{
	struct kvt_index_stats stats;

	bed_open(&bed, &(struct bed_options){.max_entries = 1u << 20, .capacity = 1ull << 40});
	kvt_index_stats(bed.index, &stats);
	/* but for what the policy allocates: 8 bytes per entry that may come */
	ck_assert_uint_lt(stats.metadata_bytes, (8u << 20) + (1u << 18));
	bed_close(&bed);
}
END_TEST

START_TEST(an_entry_costs_less_than_150_bytes)
{
	struct kvt_index_stats stats;
	const uint64_t entries = 200000;

	bed_open(&bed, &(struct bed_options){.max_entries = 200000, .capacity = 1ull << 40});
	for (uint64_t i = 0; i < entries; i++)
		put(i, NONE, 10);
	kvt_index_stats(bed.index, &stats);
	ck_assert_uint_eq(stats.entries, entries);
	/* 8 are the policy's; two steps of 2 MiB may have just begun */
	ck_assert_uint_lt(stats.metadata_bytes, entries * (150 + 8) + (4u << 20));
	bed_close(&bed);
}
END_TEST

START_TEST(wrong_options_are_refused)
{
	struct kvt_index_options options = {
		.max_entries = 0, .capacity = 1, .policy = "lru", .gone = NULL};
	struct kvt_index *x = NULL;

	open_bed(4, 10, 0);
	ck_assert_int_eq(kvt_index_create(&options, &bed.surroundings, &x), KVT_EINVAL);
	options.max_entries = 10;
	ck_assert_int_eq(kvt_index_create(&options, &bed.surroundings, &x), KVT_EINVAL);
	ck_assert_ptr_null(x);
	kvt_index_destroy(NULL);
	bed_close(&bed);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("promises");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, nothing_shows_before_publish);
	tcase_add_test(tcase, a_discarded_chunk_was_never_there);
	tcase_add_test(tcase, erased_while_filling);
	tcase_add_test(tcase, an_entry_says_what_it_was_given);
	tcase_add_test(tcase, ttls_are_kept_in_four_bytes);
	tcase_add_test(tcase, only_leaves_are_evicted);
	tcase_add_test(tcase, a_parent_makes_no_room_for_its_child);
	tcase_add_test(tcase, holds_and_pins_keep);
	tcase_add_test(tcase, erasing_leaves_holders_alone);
	tcase_add_test(tcase, children_wait_for_their_parent);
	tcase_add_test(tcase, a_circle_of_parents_can_still_leave);
	tcase_add_test(tcase, what_expires_is_a_miss_at_once);
	tcase_add_test(tcase, a_tenant_pays_for_itself);
	tcase_add_test(tcase, entries_have_a_limit_of_their_own);
	tcase_add_test(tcase, uses_are_reported_deepest_first);
	tcase_add_test(tcase, match_stops_at_the_first_gap);
	tcase_add_test(tcase, keys_are_compared_whole);
	tcase_add_test(tcase, a_dropped_chunk_stays_with_its_holder);
	tcase_add_test(tcase, a_walk_meets_each_live_entry_once);
	tcase_add_test(tcase, a_large_limit_costs_nothing_until_used);
	tcase_add_test(tcase, an_entry_costs_less_than_150_bytes);
	tcase_add_test(tcase, wrong_options_are_refused);
	return run_tcase("cache-index", tcase);
}
