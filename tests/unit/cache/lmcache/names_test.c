/*
 * names_test.c - the table of chunks' names against a plain list, and what it reports.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "lmcache/chunk_names.h"
#include "tests/unit/suite.h"

static struct kvt_key key_of(uint32_t n)
{
	struct kvt_key key = {{0}};

	memcpy(key.bytes, &n, sizeof(n));
	return key;
}

START_TEST(first_and_last_are_reported)
{
	struct kvt_chunk_names *names = kvt_chunk_names_create(16);
	struct kvt_key a = key_of(1), b = key_of(2), found;
	uint64_t hash = 0;

	ck_assert_int_eq(kvt_chunk_names_add(names, 0, &a, 7), KVT_CHUNK_TOLD);
	ck_assert_int_eq(kvt_chunk_names_add(names, 0, &a, 7), KVT_CHUNK_NOTHING);
	ck_assert_int_eq(kvt_chunk_names_add(names, 0, &b, 7), KVT_CHUNK_NOTHING);
	ck_assert_int_eq(kvt_chunk_names_add(names, 1, &b, 7), KVT_CHUNK_TOLD);
	ck_assert_uint_eq(kvt_chunk_names_count(names), 2);
	ck_assert_int_eq(kvt_chunk_names_remove(names, 0, &a, &hash), KVT_CHUNK_NOTHING);
	ck_assert(kvt_chunk_names_find(names, 0, 7, &found));
	ck_assert_mem_eq(&found, &b, sizeof(b));
	ck_assert_int_eq(kvt_chunk_names_remove(names, 0, &b, &hash), KVT_CHUNK_TOLD);
	ck_assert_uint_eq(hash, 7);
	ck_assert(!kvt_chunk_names_find(names, 0, 7, &found));
	ck_assert(kvt_chunk_names_find(names, 1, 7, &found));
	ck_assert_int_eq(kvt_chunk_names_remove(names, 0, &b, &hash), KVT_CHUNK_NOTHING);
	ck_assert_int_eq(kvt_chunk_names_remove(names, 1, &b, &hash), KVT_CHUNK_TOLD);
	ck_assert_uint_eq(kvt_chunk_names_count(names), 0);
	kvt_chunk_names_destroy(names);
}
END_TEST

START_TEST(there_is_a_bound)
{
	struct kvt_chunk_names *names = kvt_chunk_names_create(100);
	struct kvt_key key;
	uint64_t hash;

	for (uint32_t i = 0; i < 100; i++) {
		key = key_of(i);
		ck_assert_int_eq(kvt_chunk_names_add(names, 0, &key, i), KVT_CHUNK_TOLD);
	}
	key = key_of(100);
	ck_assert_int_eq(kvt_chunk_names_add(names, 0, &key, 100), KVT_CHUNK_NO_ROOM);
	key = key_of(3);
	ck_assert_int_eq(kvt_chunk_names_remove(names, 0, &key, &hash), KVT_CHUNK_TOLD);
	key = key_of(100);
	ck_assert_int_eq(kvt_chunk_names_add(names, 0, &key, 100), KVT_CHUNK_TOLD);
	kvt_chunk_names_destroy(names);
}
END_TEST

#define KEYS 3000

/* Any history leaves what a list of truth values says, by both names and in a walk. */
START_TEST(a_history_ends_as_a_list_says)
{
	struct kvt_chunk_names *names = kvt_chunk_names_create(KEYS);
	static bool held[2][KEYS];
	uint64_t seed = (uint64_t)_i + 1, hash, *out = malloc(64 * sizeof(*out));
	uint32_t expected, met;

	memset(held, 0, sizeof(held));
	for (unsigned step = 0; step < 60000; step++) {
		uint32_t n, location;
		enum kvt_chunk_news news;
		struct kvt_key key;

		seed = seed * UINT64_C(6364136223846793005) + 1;
		n = (uint32_t)(seed >> 33) % KEYS;
		location = seed >> 63;
		key = key_of(n);
		if ((seed >> 62 & 1) != 0)
			news = kvt_chunk_names_add(
				names, location, &key, n * UINT64_C(0x100000001));
		else
			news = kvt_chunk_names_remove(names, location, &key, &hash);
		ck_assert_int_eq(
			news == KVT_CHUNK_TOLD, held[location][n] != ((seed >> 62 & 1) != 0));
		held[location][n] = (seed >> 62 & 1) != 0;
	}
	for (uint32_t location = 0; location < 2; location++) {
		uint32_t cursor = 0;

		expected = met = 0;
		for (uint32_t n = 0; n < KEYS; n++) {
			struct kvt_key key = key_of(n), found;
			bool is = kvt_chunk_names_find(
				names, location, n * UINT64_C(0x100000001), &found);

			ck_assert_int_eq(is, held[location][n]);
			ck_assert(!is || memcmp(&found, &key, sizeof(key)) == 0);
			expected += held[location][n];
		}
		do
			met += kvt_chunk_names_walk(names, location, &cursor, 64, out);
		while (cursor != 0);
		ck_assert_uint_eq(met, expected);
	}
	free(out);
	kvt_chunk_names_destroy(names);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("names");

	tcase_add_test(tests, first_and_last_are_reported);
	tcase_add_test(tests, there_is_a_bound);
	tcase_add_loop_test(tests, a_history_ends_as_a_list_says, 0, 4);
	return run_tcase("cache/lmcache names", tests);
}
