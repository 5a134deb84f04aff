/*
 * presence_test.c - answers of a remote tier: believed for a time, bounded, safe in threads.
 */
#include <check.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "tiers/presence.h"
#include "tests/unit/suite.h"

#define SEEN    1000
#define MISSING 100

static struct kvt_presence *p;

static void setup(void)
{
	ck_assert_int_eq(kvt_presence_create(1024, SEEN, MISSING, &p), KVT_OK);
}

static void teardown(void)
{
	kvt_presence_destroy(p);
}

static struct kvt_key key_of(uint64_t n)
{
	struct kvt_key key = {{0}};

	memcpy(key.bytes, &n, sizeof(n));
	return key;
}

static struct kvt_tier_known known_of(uint64_t n)
{
	struct kvt_tier_known known = {.bytes = n * 3 + 1, .tokens = (uint32_t)n};

	known.tenant.bytes[0] = (uint8_t)(n % 4);
	return known;
}

static void there(uint64_t n, int64_t now)
{
	struct kvt_key key = key_of(n);
	struct kvt_tier_known known = known_of(n);

	kvt_presence_there(p, &key, &known, now);
}

static enum kvt_presence_word get(uint64_t n, int64_t now)
{
	struct kvt_key key = key_of(n);
	struct kvt_tier_known known;
	enum kvt_presence_word word = kvt_presence_get(p, &key, now, &known);

	if (word == KVT_PRESENCE_THERE) {
		ck_assert_uint_eq(known.bytes, n * 3 + 1);
		ck_assert_uint_eq(known.tokens, n);
	}
	return word;
}

START_TEST(answers_are_believed_for_their_time)
{
	struct kvt_key key = key_of(2);

	ck_assert_int_eq(get(1, 0), KVT_PRESENCE_UNKNOWN);
	there(1, 50);
	kvt_presence_missing(p, &key, 50);
	ck_assert_int_eq(get(1, 50), KVT_PRESENCE_THERE);
	ck_assert_int_eq(get(1, 50 + SEEN - 1), KVT_PRESENCE_THERE);
	ck_assert_int_eq(get(1, 50 + SEEN), KVT_PRESENCE_UNKNOWN);
	ck_assert_int_eq(get(2, 50 + MISSING - 1), KVT_PRESENCE_MISSING);
	ck_assert_int_eq(get(2, 50 + MISSING), KVT_PRESENCE_UNKNOWN);
}
END_TEST

START_TEST(the_last_answer_counts)
{
	struct kvt_key key = key_of(7);

	there(7, 10);
	kvt_presence_missing(p, &key, 20);
	ck_assert_int_eq(get(7, 20), KVT_PRESENCE_MISSING);
	there(7, 30);
	ck_assert_int_eq(get(7, 30), KVT_PRESENCE_THERE);
	ck_assert_int_eq(get(7, 20 + SEEN + 5), KVT_PRESENCE_THERE);
	kvt_presence_forget(p, &key);
	ck_assert_int_eq(get(7, 30), KVT_PRESENCE_UNKNOWN);
	kvt_presence_forget(p, &key);
}
END_TEST

START_TEST(no_time_at_all_means_not_remembered)
{
	struct kvt_presence *none;
	struct kvt_key key = key_of(1);
	struct kvt_tier_known known;

	ck_assert_int_eq(kvt_presence_create(8, UINT64_MAX, 0, &none), KVT_OK);
	kvt_presence_missing(none, &key, 5);
	ck_assert_int_eq(kvt_presence_get(none, &key, 5, &known), KVT_PRESENCE_UNKNOWN);
	known = known_of(1);
	kvt_presence_there(none, &key, &known, 5);
	ck_assert_int_eq(kvt_presence_get(none, &key, INT64_MAX - 1, &known), KVT_PRESENCE_THERE);
	kvt_presence_destroy(none);
}
END_TEST

START_TEST(bounded_and_the_newest_stay)
{
	uint64_t entries, bytes, bytes_before;
	size_t kept = 0;

	kvt_presence_stats(p, &entries, &bytes_before);
	ck_assert_uint_eq(entries, 0);
	for (uint64_t n = 0; n < 50000; n++)
		there(n, (int64_t)n / 100);
	kvt_presence_stats(p, &entries, &bytes);
	ck_assert_uint_eq(bytes, bytes_before);
	ck_assert_uint_le(entries, 1024);
	ck_assert_uint_ge(entries, 1000);
	for (uint64_t n = 50000 - 100; n < 50000; n++)
		kept += get(n, 500) == KVT_PRESENCE_THERE;
	ck_assert_uint_ge(kept, 95);
	ck_assert_int_eq(get(3, 500), KVT_PRESENCE_UNKNOWN);
}
END_TEST

START_TEST(a_tenant_or_all_are_forgotten)
{
	struct kvt_tenant tenant = {{2}};
	struct kvt_key missing = key_of(900);
	uint64_t entries, bytes;

	for (uint64_t n = 0; n < 200; n++)
		there(n, 1);
	kvt_presence_missing(p, &missing, 1);
	kvt_presence_forget_tenant(p, &tenant);
	for (uint64_t n = 0; n < 200; n++) {
		if (n % 4 == 2)
			ck_assert_int_eq(get(n, 2), KVT_PRESENCE_UNKNOWN);
	}
	ck_assert_int_eq(get(5, 2), KVT_PRESENCE_THERE);
	ck_assert_int_eq(get(900, 2), KVT_PRESENCE_MISSING);
	kvt_presence_forget_tenant(p, NULL);
	kvt_presence_stats(p, &entries, &bytes);
	ck_assert_uint_eq(entries, 0);
}
END_TEST

static void *work(void *arg)
{
	uint64_t seed = (uint64_t)(uintptr_t)arg * 77777;

	for (uint64_t i = 0; i < 20000; i++) {
		uint64_t n = (seed + i * 7919) % 3000;
		struct kvt_key key = key_of(n);
		struct kvt_tier_known known = known_of(n);

		if (i % 3 == 0)
			kvt_presence_there(p, &key, &known, (int64_t)i);
		else if (i % 7 == 0)
			kvt_presence_missing(p, &key, (int64_t)i);
		else if (kvt_presence_get(p, &key, (int64_t)i, &known) == KVT_PRESENCE_THERE &&
			 known.bytes != n * 3 + 1)
			return arg;
	}
	return NULL;
}

START_TEST(threads_at_once)
{
	pthread_t threads[4];
	void *wrong;

	for (uintptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work, (void *)(i + 1)), 0);
	for (size_t i = 0; i < 4; i++) {
		ck_assert_int_eq(pthread_join(threads[i], &wrong), 0);
		ck_assert_ptr_null(wrong);
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("presence");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, answers_are_believed_for_their_time);
	tcase_add_test(tcase, the_last_answer_counts);
	tcase_add_test(tcase, no_time_at_all_means_not_remembered);
	tcase_add_test(tcase, bounded_and_the_newest_stay);
	tcase_add_test(tcase, a_tenant_or_all_are_forgotten);
	tcase_add_test(tcase, threads_at_once);
	tcase_set_timeout(tcase, 60);
	return run_tcase("presence", tcase);
}
