/*
 * parts_test.c - what policies are made of: lists, heaps, ghosts, sketches, lives.
 */
#include "policies/entry_heap.h"
#include "policies/entry_list.h"
#include "policies/ghosts.h"
#include "policies/lives.h"
#include "policies/sketch.h"
#include "support.h"
#include "tests/unit/suite.h"

static bool in_set(void *self, uint32_t entry)
{
	return ((const bool *)self)[entry];
}

/* Oldest to newest, and back. */
static void check_list(const struct kvt_entry_list *list, const struct kvt_links *links,
	const uint32_t *order, size_t n)
{
	uint32_t at = list->oldest, last = 0;

	ck_assert_uint_eq(list->count, n);
	for (size_t i = 0; i < n; i++) {
		ck_assert_uint_eq(at, order[i] + 1);
		ck_assert_uint_eq(links[at - 1].older, last);
		last = at;
		at = links[at - 1].newer;
	}
	ck_assert_uint_eq(at, 0);
	ck_assert_uint_eq(list->newest, last);
}

START_TEST(test_list_postpones)
{
	bool may[8] = {false, false, false, true, true, true, true, true};
	struct kvt_links links[8] = {0};
	struct kvt_entry_list list = {0};

	for (uint32_t e = 0; e < 8; e++)
		kvt_entry_list_add(&list, links, e);
	ck_assert_uint_eq(kvt_entry_list_victim(&list, links, in_set, may), 3);
	/* Three were met in vain: they stand three places further on, turned around. */
	check_list(&list, links, (const uint32_t[]){3, 4, 5, 2, 1, 0, 6, 7}, 8);
	memset(may, 0, sizeof(may));
	ck_assert_uint_eq(kvt_entry_list_victim(&list, links, in_set, may), KVT_NO_ENTRY);
	check_list(&list, links, (const uint32_t[]){3, 4, 5, 2, 1, 0, 6, 7}, 8);
	may[7] = true; /* more were skipped than there is room beyond */
	ck_assert_uint_eq(kvt_entry_list_victim(&list, links, in_set, may), 7);
	check_list(&list, links, (const uint32_t[]){7, 6, 0, 1, 2, 5, 4, 3}, 8);
	kvt_entry_list_renew(&list, links, 0);
	kvt_entry_list_renew(&list, links, 0);
	kvt_entry_list_remove(&list, links, 7);
	check_list(&list, links, (const uint32_t[]){6, 1, 2, 5, 4, 3, 0}, 7);
}
END_TEST

/* Against a plain search for the smallest key; what waits is found when nothing else may go. */
START_TEST(test_heap)
{
	enum { N = 50 };
	uint64_t state = 5, keys[N];
	bool there[N] = {false}, may[N];
	struct kvt_entry_heap heap;

	ck_assert_int_eq(kvt_entry_heap_init(&heap, N), KVT_OK);
	memset(may, true, sizeof(may));
	for (int step = 0; step < 50000; step++) {
		const uint32_t e = (uint32_t)(test_random(&state) % N);
		uint32_t least = KVT_NO_ENTRY;

		if (!there[e]) {
			kvt_entry_heap_add(&heap, e, keys[e] = test_random(&state) % 1000);
			there[e] = true;
		} else if (test_random(&state) % 2) {
			kvt_entry_heap_raise(&heap, e, keys[e] += test_random(&state) % 100);
		} else {
			kvt_entry_heap_remove(&heap, e);
			there[e] = false;
		}
		for (uint32_t i = 0; i < N; i++)
			if (there[i] && (least == KVT_NO_ENTRY || keys[i] < keys[least]))
				least = i;

		const uint32_t found = kvt_entry_heap_victim(&heap, in_set, may);

		EXPECT((found == KVT_NO_ENTRY) == (least == KVT_NO_ENTRY));
		EXPECT(found == KVT_NO_ENTRY || keys[found] == keys[least]);
	}
	kvt_entry_heap_finish(&heap);
}
END_TEST

START_TEST(test_heap_waits)
{
	bool may[6] = {false, false, false, true, true, true};
	struct kvt_entry_heap heap;

	ck_assert_int_eq(kvt_entry_heap_init(&heap, 6), KVT_OK);
	for (uint32_t e = 0; e < 6; e++)
		kvt_entry_heap_add(&heap, e, e);
	ck_assert_uint_eq(kvt_entry_heap_victim(&heap, in_set, may), 3);
	ck_assert_uint_eq(heap.waiting, 3);
	/* Those that wait can be raised and removed. */
	kvt_entry_heap_raise(&heap, 1, 100);
	kvt_entry_heap_remove(&heap, 0);
	ck_assert_uint_eq(heap.waiting, 2);
	kvt_entry_heap_remove(&heap, 3);
	kvt_entry_heap_remove(&heap, 4);
	ck_assert_uint_eq(heap.waiting, 0);
	may[1] = may[2] = true;
	/* 2 took the key of 0 when it began to wait. */
	ck_assert_uint_eq(kvt_entry_heap_victim(&heap, in_set, may), 2);
	kvt_entry_heap_remove(&heap, 2);
	ck_assert_uint_eq(kvt_entry_heap_victim(&heap, in_set, may), 5);
	kvt_entry_heap_remove(&heap, 5);
	ck_assert_uint_eq(kvt_entry_heap_victim(&heap, in_set, may), 1);
	kvt_entry_heap_finish(&heap);
}
END_TEST

static void count_forgotten(void *self, uint32_t note)
{
	(void)note;
	*(uint32_t *)self += 1;
}

START_TEST(test_ghosts)
{
	uint32_t note = 0, count = 0;
	struct kvt_ghosts g;

	ck_assert_int_eq(kvt_ghosts_init(&g, 100 * 40, 1000), KVT_OK);
	ck_assert_uint_le(g.bytes, 100 * 40);
	ck_assert_uint_ge(g.limit, 80);
	g.forgotten = count_forgotten;
	g.self = &count;
	for (uint32_t i = 0; i < 10 * g.limit; i++)
		kvt_ghosts_remember(&g, i % 2, i, 3, i);
	ck_assert_uint_eq(g.lists[0].count + g.lists[1].count, g.limit);
	ck_assert_uint_eq(count, 9 * g.limit);
	ck_assert_uint_eq(g.units[0] + g.units[1], 3ull * g.limit);
	/* The last ones are known, each once, under its list and note. */
	for (uint32_t i = 9 * g.limit + 2; i < 10 * g.limit; i++) {
		ck_assert_int_eq(kvt_ghosts_recall(&g, i, &note), (int)(i % 2));
		ck_assert_uint_eq(note, i);
		ck_assert_int_eq(kvt_ghosts_recall(&g, i, &note), -1);
	}
	ck_assert_int_eq(kvt_ghosts_recall(&g, 5, &note), -1);
	for (uint32_t i = 0; i < 10; i++)
		kvt_ghosts_remember(&g, 0, 1000 + i, 3, i);
	kvt_ghosts_trim(&g, 0, 7);
	ck_assert_uint_le(g.units[0], 7);
	kvt_ghosts_finish(&g);
}
END_TEST

START_TEST(test_ghosts_without_memory)
{
	uint32_t note = 0, count = 0;
	struct kvt_ghosts g;

	ck_assert_int_eq(kvt_ghosts_init(&g, 0, 1000), KVT_OK);
	g.forgotten = count_forgotten;
	g.self = &count;
	kvt_ghosts_remember(&g, 0, 1, 1, 1);
	ck_assert_uint_eq(count, 1);
	ck_assert_int_eq(kvt_ghosts_recall(&g, 1, &note), -1);
	kvt_ghosts_trim(&g, 0, 0);
	kvt_ghosts_finish(&g);
}
END_TEST

START_TEST(test_sketch)
{
	struct kvt_sketch s;

	ck_assert_int_eq(kvt_sketch_init(&s, 10000), KVT_OK);
	for (uint64_t name = 0; name < 1000; name++)
		for (uint64_t i = 0; i < name % 8; i++)
			kvt_sketch_add(&s, name);
	uint64_t exact = 0;

	for (uint64_t name = 0; name < 1000; name++) {
		ck_assert_uint_ge(kvt_sketch_count(&s, name), name % 8);
		exact += kvt_sketch_count(&s, name) == name % 8;
	}
	ck_assert_uint_ge(exact, 950);
	for (int i = 0; i < 100; i++)
		kvt_sketch_add(&s, 7);
	ck_assert_uint_eq(kvt_sketch_count(&s, 7), KVT_SKETCH_MOST);
	/* Counts are halved in time. */
	while (s.seen != 0)
		kvt_sketch_add(&s, 1000000 + s.seen);
	ck_assert_uint_eq(kvt_sketch_count(&s, 7), KVT_SKETCH_MOST / 2);
	kvt_sketch_finish(&s);
}
END_TEST

/* One class is used again soon, one late, one never: their worths say so. */
START_TEST(test_lives)
{
	static const float prior[KVT_LIFE_CLASSES] = {1, 1, 1, 1, 1, 1, 1, 1};
	struct kvt_lives l;

	kvt_lives_init(&l, 800, prior);
	ck_assert(kvt_lives_worth(&l, 0, l.epoch) == kvt_lives_worth(&l, 1, l.epoch));
	ck_assert(kvt_lives_worth(&l, 0, l.epoch) > kvt_lives_worth(&l, 0, l.epoch - 50));
	for (int i = 0; i < 200; i++) {
		for (int k = 0; k < 10; k++) {
			kvt_lives_begin(&l, 0);
			kvt_lives_begin(&l, 1);
			kvt_lives_begin(&l, 2);
		}
		for (int k = 0; k < 10 && i >= 1; k++)
			kvt_lives_end(&l, 0, l.epoch - 1, true);
		for (int k = 0; k < 10 && i >= 20; k++)
			kvt_lives_end(&l, 1, l.epoch - 20, true);
		kvt_lives_pass(&l, 100, 1000);
	}
	ck_assert_uint_eq(l.epoch, 200);
	const float soon = kvt_lives_worth(&l, 0, l.epoch), late = kvt_lives_worth(&l, 1, l.epoch);
	const float never = kvt_lives_worth(&l, 2, l.epoch);

	ck_assert(soon > 4 * late);
	ck_assert(late > 4 * never);
	/* A chunk of a class with late reuse is worth more the longer it has waited. */
	ck_assert(kvt_lives_worth(&l, 1, l.epoch - 16) > 2 * late);
	/* A jump over many epochs, and lives older than what is told apart. */
	kvt_lives_begin(&l, 0);
	const uint32_t began = l.epoch;

	kvt_lives_pass(&l, UINT64_MAX / 2, 1000);
	ck_assert_uint_eq(l.epoch, began + KVT_LIFE_EPOCHS);
	kvt_lives_end(&l, 0, began, true);
	ck_assert(kvt_lives_worth(&l, 0, began) >= 0);
}
END_TEST

int main(void)
{
	TCase *all = tcase_create("parts");

	tcase_set_timeout(all, 120);
	tcase_add_test(all, test_list_postpones);
	tcase_add_test(all, test_heap);
	tcase_add_test(all, test_heap_waits);
	tcase_add_test(all, test_ghosts);
	tcase_add_test(all, test_ghosts_without_memory);
	tcase_add_test(all, test_sketch);
	tcase_add_test(all, test_lives);
	return run_tcase("parts", all);
}
