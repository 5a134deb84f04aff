/*
 * search_test.c - what is there is found, what is not has a place, in arrays of every small length.
 */
#include <check.h>

#include "base/search.h"
#include "tests/unit/suite.h"

#define MOST 33

static int compare(const void *key, const void *items, size_t at)
{
	int wanted = *(const int *)key, item = ((const int *)items)[at];

	return (wanted > item) - (wanted < item);
}

START_TEST(every_place_in_arrays_of_every_length)
{
	int items[MOST];

	for (int i = 0; i < MOST; i++)
		items[i] = 2 * i + 1;
	for (size_t count = 0; count <= MOST; count++)
		for (int key = 0; key <= 2 * (int)count; key++) {
			bool there = key % 2 == 0, expected = key % 2 == 1;
			size_t at = kvw_search(&key, items, count, compare, &there);

			ck_assert_int_eq(there, expected);
			ck_assert_uint_eq(at, (size_t)key / 2);
		}
}
END_TEST

START_TEST(texts_are_ordered_by_bytes_then_by_length)
{
	static const struct {
		const char *text, *other;
		int order;
	} pairs[] = {{"", "", 0}, {"", "a", -1}, {"a", "", 1}, {"a", "a", 0}, {"a", "ab", -1}, {"ab", "a", 1}, {"b", "ab", 1}};

	for (size_t i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
		int order = kvw_search_order(kvw_slice_of(pairs[i].text), pairs[i].other);

		ck_assert_int_eq((order > 0) - (order < 0), pairs[i].order);
	}
	ck_assert_int_eq(kvw_search_order((struct kvw_slice){"abc", 2}, "ab"), 0);
}
END_TEST

/* A client may name a model "a\0b": it is not the model "a", and nothing behind a name's end is looked at. */
START_TEST(a_text_may_hold_nul)
{
	char other[] = {'a', '\0'};

	ck_assert_int_gt(kvw_search_order(KVW_SLICE("a\0"), other), 0);
	ck_assert_int_gt(kvw_search_order(KVW_SLICE("a\0bcdefghijklmnopqrstuvwxyz"), other), 0);
	ck_assert_int_lt(kvw_search_order(KVW_SLICE("a\0b"), "ab"), 0);
	ck_assert_int_gt(kvw_search_order(KVW_SLICE("\0"), ""), 0);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("search");

	tcase_add_test(tcase, every_place_in_arrays_of_every_length);
	tcase_add_test(tcase, texts_are_ordered_by_bytes_then_by_length);
	tcase_add_test(tcase, a_text_may_hold_nul);
	return run_tcase("search", tcase);
}
