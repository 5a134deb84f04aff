/*
 * cache_test.c - the cache of tokens: bounded, oldest use first out, nothing lives for ever.
 */
#include <check.h>
#include <stdbool.h>
#include <stdlib.h>

#include "feeds/tokens/token_cache.h"
#include "tests/unit/suite.h"

#define TTL 1000
#define MIB ((size_t)1 << 20)

static struct kvw_token_cache *make(size_t bytes)
{
	struct kvw_token_cache *cache;

	ck_assert_int_eq(kvw_token_cache_create(bytes, TTL, &cache), KVW_OK);
	return cache;
}

static struct kvw_token_key key(uint64_t n)
{
	return (struct kvw_token_key){n * UINT64_C(0x9e3779b97f4a7c15), n};
}

static void put(struct kvw_token_cache *cache, uint64_t n, size_t count, int64_t now_ns)
{
	struct kvw_token_list *list = kvw_token_list_create(count);

	for (size_t i = 0; i < count; i++)
		list->ids[i] = (uint32_t)(n + i);
	kvw_token_cache_put(cache, key(n), list, now_ns);
	kvw_token_list_put(list);
}

static bool has(struct kvw_token_cache *cache, uint64_t n, int64_t now_ns)
{
	struct kvw_token_list *list = kvw_token_cache_get(cache, key(n), now_ns);

	if (list != NULL && list->count > 0)
		ck_assert_uint_eq(list->ids[0], n);
	kvw_token_list_put(list);
	return list != NULL;
}

START_TEST(what_was_put_is_found)
{
	struct kvw_token_cache *cache = make(MIB);

	for (uint64_t n = 1; n <= 100; n++)
		put(cache, n, 10, 0);
	for (uint64_t n = 1; n <= 100; n++)
		ck_assert(has(cache, n, 0));
	ck_assert(!has(cache, 101, 0));
	kvw_token_cache_destroy(cache);
}
END_TEST

START_TEST(memory_is_bounded_and_the_used_stay)
{
	struct kvw_token_cache *cache = make(MIB);
	struct kvw_token_cache_stats stats;

	put(cache, 1, 100, 0);
	for (uint64_t n = 2; n < 10000; n++) {
		put(cache, n, 100, 0);
		ck_assert(has(cache, 1, 0)); /* used all the time */
	}
	kvw_token_cache_stats(cache, &stats);
	ck_assert_uint_le(stats.bytes, MIB);
	ck_assert_uint_gt(stats.bytes, MIB / 2);
	ck_assert_uint_lt(stats.lists, 5000);
	ck_assert(!has(cache, 2, 0));
	ck_assert(has(cache, 9999, 0));
	kvw_token_cache_destroy(cache);
}
END_TEST

START_TEST(a_list_too_large_is_not_kept)
{
	struct kvw_token_cache *cache = make(MIB);

	put(cache, 1, 10, 0);
	put(cache, 2, MIB, 0);
	ck_assert(has(cache, 1, 0));
	ck_assert(!has(cache, 2, 0));
	kvw_token_cache_destroy(cache);
}
END_TEST

START_TEST(nothing_is_older_than_its_time)
{
	struct kvw_token_cache *cache = make(MIB);
	struct kvw_token_cache_stats stats;

	put(cache, 1, 10, 100);
	ck_assert(has(cache, 1, 100 + TTL - 1)); /* use does not make it younger */
	ck_assert(!has(cache, 1, 100 + TTL));
	kvw_token_cache_stats(cache, &stats);
	ck_assert_uint_eq(stats.lists, 0);
	ck_assert_uint_eq(stats.bytes, 0);
	put(cache, 1, 10, 5000);
	put(cache, 1, 20, 5500); /* replaces */
	ck_assert(has(cache, 1, 5500 + TTL - 1));
	kvw_token_cache_stats(cache, &stats);
	ck_assert_uint_eq(stats.lists, 1);
	kvw_token_cache_destroy(cache);
}
END_TEST

START_TEST(a_list_in_use_outlives_the_cache)
{
	struct kvw_token_cache *cache = make(MIB);
	struct kvw_token_list *list;

	put(cache, 7, 10, 0);
	list = kvw_token_cache_get(cache, key(7), 0);
	kvw_token_cache_destroy(cache);
	ck_assert_uint_eq(list->ids[9], 16);
	kvw_token_list_put(list);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("cache");

	tcase_add_test(tcase, what_was_put_is_found);
	tcase_add_test(tcase, memory_is_bounded_and_the_used_stay);
	tcase_add_test(tcase, a_list_too_large_is_not_kept);
	tcase_add_test(tcase, nothing_is_older_than_its_time);
	tcase_add_test(tcase, a_list_in_use_outlives_the_cache);
	return run_tcase("token-cache", tcase);
}
