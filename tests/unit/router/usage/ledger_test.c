/*
 * ledger_test.c - what loops count reaches hours, series, snapshots and Redis, once each.
 */
#include <check.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/suite.h"
#include "usage/ledger.h"

#define NOW   (INT64_C(490000) * KVW_USAGE_HOUR_S + 60)
#define HOURS 4

static struct kvw_ledger *ledger;

static _Thread_local unsigned locked; /* locks that this thread holds */
static unsigned merged, merged_locked; /* whole tables, and those under a lock */

int __real_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
	locked++;
	return __real_pthread_mutex_lock(lock);
}

int __real_pthread_mutex_unlock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock)
{
	locked--;
	return __real_pthread_mutex_unlock(lock);
}

void __real_kvw_usage_table_merge(struct kvw_usage_table *to, const struct kvw_usage_table *from,
	const struct kvw_slice *key);
void __wrap_kvw_usage_table_merge(struct kvw_usage_table *to, const struct kvw_usage_table *from,
	const struct kvw_slice *key);
void __wrap_kvw_usage_table_merge(struct kvw_usage_table *to, const struct kvw_usage_table *from,
	const struct kvw_slice *key)
{
	if (key == NULL && from->count > 0) {
		merged++;
		merged_locked += locked;
	}
	__real_kvw_usage_table_merge(to, from, key);
}

static struct kvw_ledger *make(size_t loops, size_t entries, size_t named, bool shared)
{
	const struct kvw_ledger_options options = {loops, entries, HOURS, named, shared};
	struct kvw_ledger *made;

	ck_assert_int_eq(kvw_ledger_create(&options, &made), KVW_OK);
	return made;
}

static void teardown(void)
{
	kvw_ledger_destroy(ledger);
	ledger = NULL;
}

static void count(size_t loop, const char *key, uint64_t prompt)
{
	const struct kvw_user user = {kvw_slice_of(key), KVW_SLICE(""), KVW_SLICE("m")};
	const struct kvw_used used = {{[KVW_USED_REQUESTS] = 1, [KVW_USED_PROMPT] = prompt}};

	kvw_usage_count(kvw_ledger_shard(ledger, loop), &user, &used);
}

/* Counts, hands over and collects. */
static void count_at(const char *key, uint64_t prompt, int64_t wall_s)
{
	count(0, key, prompt);
	kvw_usage_turn(kvw_ledger_shard(ledger, 0));
	kvw_ledger_collect(ledger, wall_s);
}

static uint64_t sum(struct kvw_ledger *of, const char *key, int64_t since_s, int64_t wall_s)
{
	const struct kvw_slice name = kvw_slice_of(key);
	struct kvw_usage_table table;
	uint64_t prompt;

	ck_assert(kvw_usage_table_init(&table, 1000, false));
	(void)kvw_ledger_sum(of, since_s, key == NULL ? NULL : &name, wall_s, &table);
	prompt = table.other.n[KVW_USED_PROMPT];
	for (size_t i = 0; i < table.count; i++)
		prompt += table.entries[i].used.n[KVW_USED_PROMPT];
	kvw_usage_table_finish(&table);
	return prompt;
}

/* --- loops --- */

#define TURNS 20000

static void *loop_main(void *arg)
{
	size_t loop = *(size_t *)arg;
	char key[16];

	for (int i = 0; i < TURNS; i++) {
		(void)snprintf(key, sizeof(key), "k%d", i % 50);
		count(loop, key, 1);
		if (i % 7 == 0)
			kvw_usage_turn(kvw_ledger_shard(ledger, loop));
	}
	return NULL;
}

START_TEST(what_loops_count_while_pages_are_collected_is_all_there)
{
	size_t loops[3] = {0, 1, 2};
	pthread_t threads[3];
	uint64_t before = 0;

	ledger = make(3, 40, 5, false); /* fewer entries than keys */
	for (size_t i = 0; i < 3; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, loop_main, &loops[i]), 0);
	for (int i = 0; i < 1000; i++) {
		uint64_t now;

		kvw_ledger_collect(ledger, NOW);
		now = sum(ledger, NULL, 0, NOW);
		ck_assert_uint_ge(now, before);
		before = now;
	}
	for (size_t i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	kvw_ledger_settle(ledger, NOW);
	ck_assert_uint_eq(sum(ledger, NULL, 0, NOW), 3 * TURNS);
}
END_TEST

START_TEST(a_page_that_is_not_collected_is_not_lost)
{
	ledger = make(1, 10, 0, false);
	for (int i = 0; i < 100; i++) {
		count(0, "k", 1);
		kvw_usage_turn(kvw_ledger_shard(ledger, 0));
	}
	kvw_ledger_collect(ledger, NOW);
	kvw_usage_turn(kvw_ledger_shard(ledger, 0));
	kvw_ledger_collect(ledger, NOW);
	ck_assert_uint_eq(sum(ledger, "k", 0, NOW), 100);
}
END_TEST

/* --- hours --- */

START_TEST(hours_are_kept_and_forgotten)
{
	struct kvw_usage_table table;

	ledger = make(1, 10, 0, false);
	for (int i = 0; i < 6; i++)
		count_at("k", UINT64_C(1) << i, NOW + i * KVW_USAGE_HOUR_S);
	ck_assert_uint_eq(sum(ledger, "k", 0, NOW + 5 * KVW_USAGE_HOUR_S), 4 + 8 + 16 + 32);
	ck_assert_uint_eq(sum(ledger, "k", NOW + 4 * KVW_USAGE_HOUR_S + 1800,
				  NOW + 5 * KVW_USAGE_HOUR_S),
		16 + 32);
	ck_assert_uint_eq(sum(ledger, "other", 0, NOW + 5 * KVW_USAGE_HOUR_S), 0);
	ck_assert(kvw_usage_table_init(&table, 10, false));
	ck_assert_int_eq(kvw_ledger_sum(ledger, 0, NULL, NOW + 5 * KVW_USAGE_HOUR_S, &table),
		NOW - 60 + 2 * KVW_USAGE_HOUR_S);
	kvw_usage_table_finish(&table);
	/* A clock that is set back by years adds to the oldest hour. */
	count_at("k", 64, 1000);
	ck_assert_uint_eq(sum(ledger, "k", 0, NOW + 5 * KVW_USAGE_HOUR_S), 64 + 4 + 8 + 16 + 32);
	kvw_ledger_collect(ledger, NOW + 100 * KVW_USAGE_HOUR_S);
	ck_assert_uint_eq(sum(ledger, "k", 0, NOW + 100 * KVW_USAGE_HOUR_S), 0);
}
END_TEST

/* Merges of whole tables take long, and loops wait for the lock. */
START_TEST(a_sum_of_all_keeps_no_loop_waiting)
{
	ledger = make(1, 10, 0, false);
	for (int i = 0; i < HOURS; i++)
		count_at("k", 1, NOW + i * KVW_USAGE_HOUR_S);
	merged = merged_locked = 0;
	ck_assert_uint_eq(sum(ledger, NULL, 0, NOW + (HOURS - 1) * KVW_USAGE_HOUR_S), HOURS);
	ck_assert_uint_eq(merged, HOURS);
	ck_assert_uint_eq(merged_locked, 0);
}
END_TEST

/* --- series --- */

struct shown {
	uint64_t of_a, named, rest;
};

static void show(void *arg, const struct kvw_user *user, const struct kvw_used *used)
{
	struct shown *shown = arg;

	if (user == NULL)
		shown->rest = used->n[KVW_USED_PROMPT];
	else
		shown->named += used->n[KVW_USED_PROMPT];
	if (user != NULL && kvw_slice_equal(user->key, KVW_SLICE("a")))
		shown->of_a = used->n[KVW_USED_PROMPT];
}

static struct shown series(void)
{
	struct shown shown = {0};

	kvw_ledger_series(ledger, show, &shown);
	return shown;
}

START_TEST(the_busiest_are_named_and_all_series_only_grow)
{
	struct kvw_ledger_stats stats;

	ledger = make(1, 10, 2, false);
	count_at("x", 1, NOW);
	count_at("y", 1, NOW);
	count_at("a", 100, NOW);
	ck_assert_uint_eq(series().rest, 100);
	kvw_ledger_collect(ledger, NOW + 61);
	ck_assert_uint_eq(series().rest, 100); /* what was counted before it was named stays */
	count_at("a", 10, NOW + 62);
	ck_assert_uint_eq(series().of_a, 10);
	ck_assert_uint_eq(series().rest, 100);
	kvw_ledger_stats(ledger, &stats);
	ck_assert_uint_eq(stats.entries, 3);
	ck_assert_uint_eq(stats.unnamed, 1);
	count_at("a", 1, NOW + KVW_USAGE_HOUR_S);
	ck_assert_uint_eq(series().of_a, 11);
}
END_TEST

/* --- snapshots --- */

struct records {
	size_t count, lens[100];
	uint8_t bytes[100][400];
};

static enum kvw_err put(void *arg, enum kvw_keep_kind kind, const void *record, size_t len)
{
	struct records *records = arg;

	ck_assert_int_eq(kind, KVW_KEPT_USAGE);
	ck_assert_uint_le(len, sizeof(records->bytes[0]));
	memcpy(records->bytes[records->count], record, len);
	records->lens[records->count++] = len;
	return KVW_OK;
}

static void recall(struct kvw_ledger *to, const struct records *records)
{
	for (size_t i = 0; i < records->count; i++)
		kvw_ledger_recall(to, records->bytes[i], records->lens[i], NOW);
}

START_TEST(a_snapshot_and_the_rest_bring_everything_to_the_heir)
{
	struct records *records = calloc(2, sizeof(*records));
	const struct kvw_keep_out out = {.put = put, .arg = records},
				  rest = {.put = put, .arg = records + 1};
	struct kvw_ledger *heir = make(1, 10, 0, false);
	char key[16];

	ledger = make(1, 80, 0, false);
	count_at("old", 5, NOW - 2 * KVW_USAGE_HOUR_S);
	for (int i = 0; i < 70; i++) {
		(void)snprintf(key, sizeof(key), "k%d", i);
		count_at(key, 1, NOW);
	}
	ck_assert_int_eq(kvw_ledger_keep_rest(ledger, &rest), KVW_OK);
	ck_assert_uint_eq(records[1].count, 0); /* no heir was given any */
	ck_assert_int_eq(kvw_ledger_keep(ledger, &out, true), KVW_OK);
	ck_assert_uint_eq(records[0].count, 71);
	count_at("k1", 2, NOW);
	count_at("new", 3, NOW);
	count_at("later", 4, NOW + KVW_USAGE_HOUR_S);
	ck_assert_int_eq(kvw_ledger_keep_rest(ledger, &rest), KVW_OK);
	ck_assert_uint_eq(records[1].count, 3);
	recall(heir, records);
	ck_assert_uint_eq(sum(heir, NULL, 0, NOW), 75);
	ck_assert_uint_eq(sum(heir, NULL, NOW, NOW), 70);
	for (size_t i = 0; i < records[1].count; i++)
		kvw_ledger_recall(heir, records[1].bytes[i], records[1].lens[i],
			NOW + KVW_USAGE_HOUR_S);
	ck_assert_uint_eq(sum(heir, NULL, 0, NOW + KVW_USAGE_HOUR_S), 75 + 2 + 3 + 4);
	kvw_ledger_destroy(heir);
	free(records);
}
END_TEST

START_TEST(damaged_records_are_ignored)
{
	struct records *records = calloc(1, sizeof(*records));
	const struct kvw_keep_out out = {.put = put, .arg = records};
	struct kvw_ledger *heir = make(1, 10, 0, false);
	uint8_t *bytes = records->bytes[0];
	size_t len;

	ledger = make(1, 10, 0, false);
	count_at("key", 5, NOW);
	ck_assert_int_eq(kvw_ledger_keep(ledger, &out, false), KVW_OK);
	len = records->lens[0];
	for (size_t i = 0; i < len; i++)
		kvw_ledger_recall(heir, bytes, i, NOW);
	for (size_t i = 0; i < 12; i++) { /* the hour and the lengths */
		bytes[i] ^= 0xff;
		kvw_ledger_recall(heir, bytes, len, NOW);
		bytes[i] ^= 0xff;
	}
	kvw_ledger_recall(heir, bytes, len, NOW + HOURS * KVW_USAGE_HOUR_S);
	ck_assert_uint_eq(sum(heir, NULL, 0, NOW), 0);
	kvw_ledger_recall(heir, bytes, len, NOW);
	ck_assert_uint_eq(sum(heir, NULL, 0, NOW), 5);
	kvw_ledger_destroy(heir);
	free(records);
}
END_TEST

/* --- replicas --- */

START_TEST(what_redis_confirms_is_shown_once)
{
	struct kvw_usage_table sent, heard;
	int64_t hour = 0;

	ledger = make(1, 10, 0, true);
	ck_assert(kvw_usage_table_init(&sent, 1, false));
	count_at("a", 1, NOW);
	count_at("b", 2, NOW);
	ck_assert(kvw_ledger_unsent(ledger, 1, &hour, &sent));
	ck_assert_int_eq(hour, NOW / KVW_USAGE_HOUR_S);
	count_at("a", 4, NOW); /* meanwhile */
	ck_assert_uint_eq(sum(ledger, NULL, 0, NOW), 7);
	kvw_ledger_sent(ledger, hour, &sent);
	ck_assert_uint_eq(sum(ledger, NULL, 0, NOW), 7);
	kvw_usage_table_clear(&sent);
	ck_assert(kvw_ledger_unsent(ledger, 1, &hour, &sent)); /* the 4 */
	ck_assert_uint_eq(sent.entries[0].used.n[KVW_USED_PROMPT], 4);
	kvw_ledger_sent(ledger, hour, &sent);
	kvw_usage_table_clear(&sent);
	ck_assert(kvw_ledger_unsent(ledger, 1, &hour, &sent)); /* b */
	kvw_ledger_sent(ledger, hour, &sent);
	kvw_usage_table_clear(&sent);
	ck_assert(!kvw_ledger_unsent(ledger, 1, &hour, &sent));
	/* Redis has what another replica has counted, too. */
	ck_assert(kvw_usage_table_init(&heard, 10, false));
	kvw_usage_table_merge(&heard, &sent, NULL);
	heard.other.n[KVW_USED_PROMPT] = 100;
	kvw_ledger_heard_take(ledger, hour, &heard);
	ck_assert_uint_eq(sum(ledger, NULL, 0, NOW), 100);
	count_at("b", 8, NOW);
	ck_assert_uint_eq(sum(ledger, NULL, 0, NOW), 108);
	kvw_usage_table_finish(&sent);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("ledger");

	tcase_add_checked_fixture(tc, NULL, teardown);
	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, what_loops_count_while_pages_are_collected_is_all_there);
	tcase_add_test(tc, a_page_that_is_not_collected_is_not_lost);
	tcase_add_test(tc, hours_are_kept_and_forgotten);
	tcase_add_test(tc, a_sum_of_all_keeps_no_loop_waiting);
	tcase_add_test(tc, the_busiest_are_named_and_all_series_only_grow);
	tcase_add_test(tc, a_snapshot_and_the_rest_bring_everything_to_the_heir);
	tcase_add_test(tc, damaged_records_are_ignored);
	tcase_add_test(tc, what_redis_confirms_is_shown_once);
	return run_tcase("usage-ledger", tc);
}
