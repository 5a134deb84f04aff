/*
 * parts_test.c - what the index is made of: table, pool, region, ring of uses, comparison of keys.
 */
#include "index/index_parts.h"
#include "support.h"
#include "tests/unit/suite.h"

START_TEST(a_key_differs_in_any_bit)
{
	static struct kvt_entry e;
	struct kvt_key key = key_of(1);

	kvt_entry_set_key(&e, &key);
	ck_assert(kvt_entry_has_key(&e, &key));
	for (int bit = 0; bit < KVT_KEY_BYTES * 8; bit++) {
		key.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ck_assert(!kvt_entry_has_key(&e, &key));
		key.bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
}
END_TEST

START_TEST(a_region_grows_in_place)
{
	struct kvt_region r;
	unsigned char *base;

	ck_assert_int_eq(kvt_region_init(&r, (size_t)1 << 30), KVT_OK);
	base = r.base;
	for (size_t bytes = 1; bytes <= (size_t)8 << 20; bytes *= 2) {
		ck_assert_int_eq(kvt_region_grow(&r, bytes), KVT_OK);
		ck_assert_uint_ge(r.usable, bytes);
		ck_assert_ptr_eq(r.base, base);
		ck_assert_uint_eq(base[bytes - 1], 0);
		base[bytes - 1] = 1;
	}
	ck_assert_int_eq(kvt_region_grow(&r, ((size_t)1 << 30) + 1), KVT_ENOMEM);
	ck_assert_uint_eq(base[0], 1);
	kvt_region_clear(&r);
	ck_assert_uint_eq(base[0], 0); /* still readable */
	kvt_region_finish(&r);
	kvt_region_finish(&r);
	ck_assert_int_eq(kvt_region_init(&r, SIZE_MAX), KVT_ENOMEM);
}
END_TEST

static bool holds_slot(struct kvt_table *t, uint32_t hash, uint32_t number)
{
	struct kvt_slots *s = atomic_load(&t->now);
	uint32_t at = kvt_slots_home(s, hash), steps = 0, found;

	do {
		found = kvt_slots_find(s, hash, &at, &steps);
	} while (found != KVT_NO_ENTRY && found != number);
	return found == number;
}

/* Hashes that crowd: few homes, rows that go around the end. */
static uint32_t crowded(uint32_t number, uint32_t kind)
{
	const uint32_t spread = number * 2654435761u;

	if (kind == 0)
		return spread;
	return kind == 1 ? UINT32_MAX - number % 7 * 1000 : (spread & 0x3u) << 30 | number % 5;
}

START_TEST(a_table_finds_what_was_added)
{
	const uint32_t most = 3000, kind = (uint32_t)_i;
	struct kvt_table t;
	uint64_t state = 5;
	static bool there[3000];

	memset(there, 0, sizeof(there));
	ck_assert_int_eq(kvt_table_init(&t, most), KVT_OK);
	for (int step = 0; step < 60000; step++) {
		uint32_t number = (uint32_t)(test_random(&state) % most);

		if (kind != 0)
			number %= 300; /* long rows are slow */
		if (there[number]) {
			kvt_table_remove(&t, crowded(number, kind), number);
		} else {
			ck_assert_int_eq(kvt_table_make_room(&t), KVT_OK);
			kvt_table_add(&t, crowded(number, kind), number);
		}
		there[number] = !there[number];
		EXPECT(holds_slot(&t, crowded(number, kind), number) == there[number]);
		if (step % 1000 != 0)
			continue;
		for (uint32_t i = 0; i < most; i++)
			EXPECT(holds_slot(&t, crowded(i, kind), i) == there[i]);
	}
	kvt_table_finish(&t);
}
END_TEST

START_TEST(churn_leaves_nothing_in_a_table)
{
	const uint32_t most = 1000;
	struct kvt_table t;
	struct kvt_slots *s;
	uint32_t full = 0;

	ck_assert_int_eq(kvt_table_init(&t, most), KVT_OK);
	for (uint32_t i = 0; i < 200000; i++) {
		if (i >= most)
			kvt_table_remove(&t, crowded(i - most, 0), i - most);
		ck_assert_int_eq(kvt_table_make_room(&t), KVT_OK);
		kvt_table_add(&t, crowded(i, 0), i);
	}
	s = atomic_load(&t.now);
	for (uint32_t i = 0; i < s->count; i++)
		full += atomic_load(&s->slot[i]) != 0;
	ck_assert_uint_eq(full, most);
	ck_assert_uint_le(s->count, most + most / 3 + 8);
	kvt_table_finish(&t);
}
END_TEST

START_TEST(an_index_outgrows_its_first_tables)
{
	const uint64_t entries = 20000;
	const struct kvt_entry_info info = info_of(1);
	struct bed bed;
	uint64_t seen = 0;

	bed_open(&bed, &(struct bed_options){.max_entries = 20000, .capacity = 1 << 30});
	for (uint64_t i = 0; i < entries; i++) {
		EXPECT(bed_put(&bed, i, UINT64_MAX, &info) == KVT_OK);
		EXPECT(bed_has(&bed, i) && bed_has(&bed, i / 2));
	}
	for (uint64_t i = 0; i < entries; i += 2) {
		const struct kvt_key key = key_of(i);

		EXPECT(kvt_index_erase(bed.index, &key, 1) == 1);
	}
	for (uint64_t i = 0; i < entries; i++)
		seen += bed_has(&bed, i);
	ck_assert_uint_eq(seen, entries / 2);
	bed_close(&bed);
	ck_assert_uint_eq(bed.gone, entries);
}
END_TEST

struct record {
	struct kvt_pool_node node;
	uint32_t name;
};

START_TEST(a_pool_finds_its_records)
{
	static uint32_t numbers[1000];
	struct kvt_pool p;
	uint32_t number;

	ck_assert_int_eq(kvt_pool_init(&p, 1000, sizeof(struct record)), KVT_OK);
	ck_assert_uint_eq(kvt_pool_first(&p, 3), KVT_NO_ENTRY);
	for (uint32_t round = 0; round < 3; round++) {
		for (uint32_t i = 0; i < 1000; i++) {
			ck_assert_int_eq(kvt_pool_add(&p, i % 100, &numbers[i]), KVT_OK);
			((struct record *)kvt_pool_at(&p, numbers[i]))->name = i;
		}
		ck_assert_int_eq(kvt_pool_add(&p, 1, &number), KVT_FULL);
		for (uint32_t i = 0; i < 100; i++) {
			uint32_t found = 0;

			number = kvt_pool_first(&p, i);
			for (; number != KVT_NO_ENTRY; number = kvt_pool_next(&p, number), found++)
				EXPECT(((struct record *)kvt_pool_at(&p, number))->name % 100 == i);
			EXPECT(found == 10);
		}
		for (uint32_t i = 0; i < 1000; i++)
			kvt_pool_remove(&p, numbers[(i * 7) % 1000]);
		ck_assert_uint_eq(p.count, 0);
		ck_assert_uint_eq(kvt_pool_first(&p, 3), KVT_NO_ENTRY);
	}
	kvt_pool_finish(&p);
}
END_TEST

static uint64_t report_uses(struct kvt_uses *u, uint32_t first, uint32_t n)
{
	uint64_t place, got = kvt_uses_reserve(u, n, &place);

	for (uint32_t i = 0; i < got; i++)
		kvt_uses_put(u, place + i, first + i, first);
	return got;
}

START_TEST(uses_are_bounded_and_in_order)
{
	struct kvt_uses u = {0};
	uint32_t entry, generation;
	uint64_t place;

	ck_assert_int_eq(kvt_uses_init(&u, 4), KVT_OK);
	ck_assert(!kvt_uses_take(&u, &entry, &generation));
	for (int round = 0; round < 5; round++) {
		ck_assert_uint_eq(report_uses(&u, 10, (uint32_t)u.size - 3), u.size - 3);
		ck_assert(kvt_uses_press(&u));
		ck_assert_uint_eq(report_uses(&u, 1000, 5), 3);
		ck_assert_uint_eq(report_uses(&u, 2000, 1), 0);
		ck_assert_uint_eq(atomic_load(&u.lost), 3u * (uint64_t)(round + 1));
		for (uint32_t i = 0; i < u.size; i++) {
			ck_assert(kvt_uses_take(&u, &entry, &generation));
			ck_assert_uint_eq(entry, i < u.size - 3 ? 10 + i : 1000 + i - (u.size - 3));
			ck_assert_uint_eq(generation, i < u.size - 3 ? 10 : 1000);
		}
		ck_assert(!kvt_uses_take(&u, &entry, &generation));
	}
	ck_assert_uint_eq(kvt_uses_reserve(&u, 1, &place), 1);
	ck_assert_uint_eq(report_uses(&u, 7, 1), 1);
	ck_assert(!kvt_uses_take(&u, &entry, &generation)); /* the first is not written yet */
	kvt_uses_put(&u, place, 6, 0);
	ck_assert(kvt_uses_take(&u, &entry, &generation) && entry == 6);
	ck_assert(kvt_uses_take(&u, &entry, &generation) && entry == 7);
	kvt_uses_finish(&u);
}
END_TEST

START_TEST(readers_alone_do_not_lose_uses_for_long)
{
	const struct kvt_entry_info info = info_of(1);
	struct kvt_index_stats stats;
	struct bed bed;
	uint32_t entry;

	bed_open(&bed, &(struct bed_options){.max_entries = 64, .capacity = 64});
	for (uint64_t i = 0; i < 64; i++)
		ck_assert_int_eq(bed_put(&bed, i, UINT64_MAX, &info), KVT_OK);
	for (uint64_t i = 0; i < 5000; i++) { /* far more than the ring has room for */
		const struct kvt_key key = key_of(i % 63);

		ck_assert_int_eq(kvt_index_hold(bed.index, &key, true, &entry), KVT_OK);
		kvt_index_release(bed.index, entry);
	}
	kvt_index_stats(bed.index, &stats);
	ck_assert_uint_eq(stats.uses_lost, 0);
	ck_assert(kvt_index_evict(bed.index));
	ck_assert(!bed_has(&bed, 63));
	bed_close(&bed);
}
END_TEST

/* What a reader that was interrupted between looking and taking hold goes by. */
START_TEST(a_second_life_is_another_state)
{
	const struct kvt_key key = key_of(1);
	const struct kvt_entry_info info = info_of(1);
	uint64_t first, second;
	struct bed bed;
	uint32_t entry;

	bed_open(&bed, &(struct bed_options){.max_entries = 1, .capacity = 1});
	ck_assert_int_eq(bed_put(&bed, 1, UINT64_MAX, &info), KVT_OK);
	ck_assert_int_eq(kvt_index_hold(bed.index, &key, false, &entry), KVT_OK);
	first = kvt_entry_state(kvt_index_at(bed.index, entry));
	kvt_index_release(bed.index, entry);
	ck_assert_int_eq(bed_put(&bed, 2, UINT64_MAX, &info), KVT_OK); /* the only entry there is */
	ck_assert_int_eq(bed_put(&bed, 1, UINT64_MAX, &info), KVT_OK);
	ck_assert_int_eq(kvt_index_hold(bed.index, &key, false, &entry), KVT_OK);
	second = kvt_entry_state(kvt_index_at(bed.index, entry));
	ck_assert(first != second);
	ck_assert(kvt_state_phase(first) == kvt_state_phase(second));
	ck_assert(kvt_state_holds(first) == kvt_state_holds(second));
	kvt_index_release(bed.index, entry);
	bed_close(&bed);
}
END_TEST

START_TEST(a_use_of_an_earlier_life_is_not_told)
{
	const struct kvt_entry_info info = info_of(1);
	const struct kvt_key key = key_of(0);
	struct bed bed;
	uint32_t entry, generation;
	uint64_t place;

	bed_open(&bed, &(struct bed_options){.max_entries = 4, .capacity = 4});
	for (uint64_t i = 0; i < 3; i++)
		ck_assert_int_eq(bed_put(&bed, i, UINT64_MAX, &info), KVT_OK);
	ck_assert_int_eq(kvt_index_hold(bed.index, &key, false, &entry), KVT_OK);
	generation = kvt_state_generation(kvt_entry_state(kvt_index_at(bed.index, entry)));
	kvt_index_release(bed.index, entry);
	ck_assert_uint_eq(kvt_uses_reserve(&bed.index->uses, 1, &place), 1);
	kvt_uses_put(&bed.index->uses, place, entry, generation - 1);
	ck_assert(kvt_index_evict(bed.index) && !bed_has(&bed, 0));
	bed_close(&bed);
}
END_TEST

/* The only entry becomes another chunk's, of the same number, phase and holds. */
static void take_over(struct bed *bed)
{
	const struct kvt_key key = key_of(1);
	const struct kvt_entry_info info = info_of(1);

	EXPECT(kvt_index_erase(bed->index, &key, 1) == 1);
	EXPECT(bed_put(bed, 2, UINT64_MAX, &info) == KVT_OK);
}

/* A reader asks for the time after it has compared the key: what if the entry changes then? */
START_TEST(an_entry_that_changes_under_a_reader_is_a_miss)
{
	struct kvt_entry_info info = info_of(1);
	const struct kvt_key key = key_of(1), other = key_of(2);
	struct kvt_index_stats stats;
	struct bed bed;
	uint32_t entry;

	bed_open(&bed, &(struct bed_options){.max_entries = 1, .capacity = 1});
	info.expires_wall_ns = INT64_MAX - 1;
	ck_assert_int_eq(bed_put(&bed, 1, UINT64_MAX, &info), KVT_OK);
	bed.on_clock = take_over;
	if (_i == 0)
		ck_assert_uint_eq(kvt_index_match(bed.index, &key, 1), 0);
	else
		ck_assert_int_eq(kvt_index_hold(bed.index, &key, true, &entry), KVT_MISS);
	ck_assert_ptr_null(bed.on_clock);
	ck_assert_uint_eq(kvt_index_match(bed.index, &other, 1), 1);
	kvt_index_stats(bed.index, &stats);
	ck_assert_uint_eq(stats.held, 0);
	bed_close(&bed);
	ck_assert_uint_eq(bed.gone, 2);
}
END_TEST

/* The second chunk of the chain moves to another entry. */
static void move_second(struct bed *bed)
{
	const struct kvt_key key = key_of(2);
	const struct kvt_entry_info info = info_of(1);

	EXPECT(kvt_index_erase(bed->index, &key, 1) == 1);
	EXPECT(bed_put(bed, 3, UINT64_MAX, &info) == KVT_OK);
	EXPECT(bed_put(bed, 2, UINT64_MAX, &info) == KVT_OK);
}

START_TEST(a_stale_proposal_is_looked_up_again)
{
	struct kvt_entry_info info = info_of(1);
	const struct kvt_key chain[2] = {key_of(1), key_of(2)};
	uint32_t entries[2];
	struct bed bed;

	bed_open(&bed, &(struct bed_options){.max_entries = 8, .capacity = 8});
	info.expires_wall_ns = INT64_MAX - 1;
	ck_assert_int_eq(bed_put(&bed, 1, UINT64_MAX, &info), KVT_OK);
	ck_assert_int_eq(bed_put(&bed, 2, UINT64_MAX, &info), KVT_OK);
	bed.on_clock = move_second;
	ck_assert_uint_eq(kvt_index_hold_chain(bed.index, chain, 2, true, entries), 2);
	ck_assert_mem_eq(kvt_index_key(bed.index, entries[1]), &chain[1], sizeof(chain[1]));
	kvt_index_release(bed.index, entries[0]);
	kvt_index_release(bed.index, entries[1]);
	bed_close(&bed);
}
END_TEST

START_TEST(a_writer_that_stopped_in_a_move_stops_no_reader)
{
	const struct kvt_entry_info info = info_of(1);
	struct bed bed;

	bed_open(&bed, &(struct bed_options){.max_entries = 8, .capacity = 8});
	ck_assert_int_eq(bed_put(&bed, 1, UINT64_MAX, &info), KVT_OK);
	atomic_fetch_add(&bed.index->table.moves, 1);
	ck_assert(bed_has(&bed, 1));
	ck_assert(!bed_has(&bed, 2));
	atomic_fetch_add(&bed.index->table.moves, 1);
	bed_close(&bed);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("parts");

	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, a_key_differs_in_any_bit);
	tcase_add_test(tcase, a_region_grows_in_place);
	tcase_add_loop_test(tcase, a_table_finds_what_was_added, 0, 3);
	tcase_add_test(tcase, churn_leaves_nothing_in_a_table);
	tcase_add_test(tcase, an_index_outgrows_its_first_tables);
	tcase_add_test(tcase, a_pool_finds_its_records);
	tcase_add_test(tcase, uses_are_bounded_and_in_order);
	tcase_add_test(tcase, readers_alone_do_not_lose_uses_for_long);
	tcase_add_loop_test(tcase, an_entry_that_changes_under_a_reader_is_a_miss, 0, 2);
	tcase_add_test(tcase, a_stale_proposal_is_looked_up_again);
	tcase_add_test(tcase, a_writer_that_stopped_in_a_move_stops_no_reader);
	tcase_add_test(tcase, a_second_life_is_another_state);
	tcase_add_test(tcase, a_use_of_an_earlier_life_is_not_told);
	return run_tcase("cache-index-parts", tcase);
}
