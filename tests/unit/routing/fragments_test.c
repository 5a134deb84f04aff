/*
 * fragments_test.c - texts and the workers that were sent them: what is remembered, for how long, and what it costs when
 * the table is full or several threads teach.
 */
#include <pthread.h>
#include <stdlib.h>

#include "routing/fragments.h"
#include "support.h"
#include "tests/unit/suite.h"

#define PLENTY UINT64_C(1000000000)

static struct kvw_fragments *table;
static uint32_t found[KVW_FRAGMENT_HOLDERS];

static void setup(void)
{
	ck_assert_int_eq(kvw_fragments_create(1 << 20, &table), KVW_OK);
}

static void teardown(void)
{
	kvw_fragments_destroy(table);
}

/* A hash of a number, spread as real ones are. */
static uint64_t text(uint64_t n)
{
	n = (n + 1) * UINT64_C(0x9e3779b97f4a7c15);
	return n ^ n >> 29;
}

static bool holds(uint32_t worker, uint64_t hash, uint64_t held)
{
	uint32_t count = kvw_fragments_find(table, hash, held, found);

	for (uint32_t i = 0; i < count; i++)
		if (found[i] == worker)
			return true;
	return false;
}

START_TEST(a_text_is_held_where_it_was_sent)
{
	ck_assert_uint_eq(kvw_fragments_find(table, text(1), PLENTY, found), 0);
	kvw_fragments_teach(table, text(1), 1000, 3, PLENTY);
	kvw_fragments_teach(table, text(1), 1000, 1023, PLENTY);
	kvw_fragments_teach(table, text(1), 1000, 3, PLENTY);
	ck_assert_uint_eq(kvw_fragments_find(table, text(1), PLENTY, found), 2);
	ck_assert(holds(3, text(1), PLENTY) && holds(1023, text(1), PLENTY));
	ck_assert_uint_eq(kvw_fragments_find(table, text(2), PLENTY, found), 0);
	kvw_fragments_teach(table, 0, 1000, 0, PLENTY); /* no number is special */
	ck_assert(holds(0, 0, PLENTY));
}
END_TEST

START_TEST(a_worker_holds_so_much_and_no_more)
{
	for (uint64_t n = 0; n < 10; n++)
		kvw_fragments_teach(table, text(n), 6400, 5, 64000);
	for (uint64_t n = 0; n < 10; n++)
		ck_assert_int_eq(holds(5, text(n), 32000), n >= 5);
	kvw_fragments_teach(table, text(6), 6400, 5, 32000); /* used again: it becomes the newest */
	kvw_fragments_teach(table, text(20), 6400, 5, 32000);
	kvw_fragments_teach(table, text(21), 6400, 5, 32000);
	ck_assert(holds(5, text(6), 32000));
	ck_assert(!holds(5, text(7), 20000));
	ck_assert(!holds(5, text(5), 32000));
	kvw_fragments_teach(table, text(5), 6400, 6, 32000); /* another worker's is not pushed out */
	ck_assert(holds(6, text(5), 32000));
}
END_TEST

START_TEST(a_purged_worker_holds_nothing_until_it_is_sent_texts)
{
	for (uint32_t worker = 0; worker < 3; worker++)
		for (uint64_t n = 0; n < 50; n++)
			kvw_fragments_teach(table, text(n), 500, worker, PLENTY);
	kvw_fragments_purge(table, 1);
	for (uint64_t n = 0; n < 50; n++) {
		ck_assert(!holds(1, text(n), PLENTY));
		ck_assert(holds(0, text(n), PLENTY) && holds(2, text(n), PLENTY));
	}
	kvw_fragments_teach(table, text(7), 500, 1, PLENTY);
	ck_assert(holds(1, text(7), PLENTY));
	ck_assert(!holds(1, text(8), PLENTY));
	kvw_fragments_purge(table, 1);
	ck_assert(!holds(1, text(7), PLENTY));
}
END_TEST

/* Against a model that remembers all: what is found was taught, and while there is room nothing is missed. */
START_TEST(nothing_is_found_that_was_not_taught)
{
	enum { TEXTS = 3000, WORKERS = 7 };
	static bool taught[TEXTS][WORKERS];
	uint64_t random = (uint64_t)_i + 1, used, most, bytes;
	size_t missed = 0, held = 0;

	memset(taught, 0, sizeof(taught));
	for (int step = 0; step < 20000; step++) {
		uint32_t n, worker;

		random = random * UINT64_C(6364136223846793005) + 1442695040888963407u;
		n = (uint32_t)(random >> 33) % TEXTS;
		worker = (uint32_t)(random >> 20) % WORKERS;
		if (random >> 54 == 0) {
			kvw_fragments_purge(table, worker);
			for (n = 0; n < TEXTS; n++)
				taught[n][worker] = false;
			continue;
		}
		kvw_fragments_teach(table, text(n), 300 + n, worker, PLENTY);
		taught[n][worker] = true;
	}
	for (uint32_t n = 0; n < TEXTS; n++) {
		uint32_t count = kvw_fragments_find(table, text(n), PLENTY, found);

		for (uint32_t i = 0; i < count; i++)
			ck_assert(taught[n][found[i]]);
		for (uint32_t worker = 0; worker < WORKERS; worker++) {
			held += taught[n][worker];
			missed += taught[n][worker] && !holds(worker, text(n), PLENTY);
		}
	}
	ck_assert_uint_le(missed, held / 20); /* sets of eight, a third full */
	kvw_fragments_stats(table, &used, &most, &bytes);
	ck_assert_uint_le(used, most);
	ck_assert_uint_eq(most, (1 << 20) / 16);
}
END_TEST

START_TEST(the_table_keeps_its_size)
{
	uint64_t used, most, bytes;

	kvw_fragments_destroy(table);
	ck_assert_int_eq(kvw_fragments_create(64 << 10, &table), KVW_OK);
	for (uint64_t n = 0; n < 100000; n++)
		kvw_fragments_teach(table, text(n), 300, (uint32_t)(n % 9), PLENTY);
	kvw_fragments_stats(table, &used, &most, &bytes);
	ck_assert_uint_eq(most, (64 << 10) / 16);
	ck_assert_uint_eq(used, most);
	/* the newest are there */
	for (uint64_t n = 99990; n < 100000; n++)
		ck_assert(holds((uint32_t)(n % 9), text(n), PLENTY));
}
END_TEST

static void *teach(void *arg)
{
	uint32_t worker = (uint32_t)(uintptr_t)arg;
	uint32_t workers[KVW_FRAGMENT_HOLDERS];

	for (uint64_t n = 0; n < 30000; n++) {
		uint32_t count;

		kvw_fragments_teach(table, text(n % 200), 300, worker, PLENTY);
		count = kvw_fragments_find(table, text(n % 300), PLENTY, workers);
		for (uint32_t i = 0; i < count; i++)
			EXPECT(workers[i] < 4 && n % 300 < 200);
		if (n % 5000 == 4999)
			kvw_fragments_purge(table, worker);
	}
	return NULL;
}

START_TEST(threads_find_no_text_that_nobody_taught)
{
	pthread_t threads[4];

	for (uintptr_t i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, teach, (void *)i), 0);
	for (size_t i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("fragments");

	tcase_add_checked_fixture(tests, setup, teardown);
	tcase_add_test(tests, a_text_is_held_where_it_was_sent);
	tcase_add_test(tests, a_worker_holds_so_much_and_no_more);
	tcase_add_test(tests, a_purged_worker_holds_nothing_until_it_is_sent_texts);
	tcase_add_loop_test(tests, nothing_is_found_that_was_not_taught, 0, 4);
	tcase_add_test(tests, the_table_keeps_its_size);
	tcase_add_test(tests, threads_find_no_text_that_nobody_taught);
	return run_tcase("fragments", tests);
}
