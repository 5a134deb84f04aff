/*
 * faults_test.c - what goes wrong below the store: errors, short transfers, flipped bits, stalls, a
 * full disk, a device that is gone. Chunks may be lost; no wrong byte, no end of the process, and
 * the store works again when the fault is over.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "store.h"
#include "io/testing/test_disk.h"
#include "io/testing/test_faults.h"
#include "tests/unit/suite.h"

static struct store s;
static struct kvt_disk *disk;
static struct kvt_faults *faults;
static struct kvt_io_layer layer;

static void make(uint64_t capacity)
{
	struct kvt_disk_options options = {.capacity = capacity};

	store_init(&s);
	options.clock = &s.time;
	ck_assert_int_eq(kvt_disk_create(&options, &disk), KVT_OK);
	ck_assert_int_eq(kvt_faults_create(kvt_disk_layer(disk), 7, &s.time, &faults), KVT_OK);
	layer = kvt_faults_layer(faults);
	s.config.io = &layer;
}

static void setup(void)
{
	make(0);
	ck_assert_int_eq(store_open(&s), KVT_OK);
}

static void teardown(void)
{
	kvt_faults_clear(faults);
	store_finish(&s);
	kvt_faults_destroy(faults);
	kvt_disk_destroy(disk);
}

static void rule(enum kvt_fault_kind kind, uint32_t on, const char *name, double chance, int error)
{
	struct kvt_fault_rule r = {
		.kind = kind, .on = on, .name = name, .chance = chance, .error = error};

	ck_assert_int_eq(kvt_faults_add(faults, &r), KVT_OK);
}

/* Puts and gets anything; says how much went well. */
static unsigned work(uint64_t first, unsigned count)
{
	unsigned good = 0;

	for (uint64_t n = first; n < first + count; n++) {
		enum kvt_status put = store_put(&s, n);
		enum kvt_status get = store_get(&s, n);

		ck_assert(put == KVT_OK || put == KVT_EIO || put == KVT_FULL || put == KVT_EXISTS);
		ck_assert(
			get == KVT_OK || get == KVT_MISS || get == KVT_EIO || get == KVT_ECORRUPT);
		good += get == KVT_OK;
	}
	return good;
}

/* After the fault: everything works, also after a reopen. */
static void works_again(void)
{
	kvt_faults_clear(faults);
	store_advance(&s, 60000000000);
	store_step(&s, 200);
	ck_assert_uint_eq(work(5000, 20), 20);
	ck_assert_uint_eq(store_stats(&s).state, KVT_TIER_WORKS);
	ck_assert_int_eq(store_flush(&s), KVT_OK);
	store_close(&s);
	ck_assert_int_eq(store_open(&s), KVT_OK);
	for (uint64_t n = 5000; n < 5020; n++)
		ck_assert_int_eq(store_get(&s, n), KVT_OK);
}

START_TEST(errors_of_data)
{
	rule(KVT_FAULT_ERROR, KVT_ON_READ | KVT_ON_WRITE, "data", 0.3, EIO);
	ck_assert_uint_gt(work(1, 200), 20);
	ck_assert_uint_gt(store_stats(&s).io_errors, 20);
	works_again();
}
END_TEST

START_TEST(short_transfers)
{
	rule(KVT_FAULT_SHORT, KVT_ON_READ | KVT_ON_WRITE, NULL, 0.2, 0);
	(void)work(1, 200);
	ck_assert_uint_gt(kvt_faults_struck(faults, KVT_FAULT_SHORT), 10);
	works_again();
}
END_TEST

START_TEST(flipped_bits)
{
	rule(KVT_FAULT_FLIP, KVT_ON_READ, NULL, 0.5, 0);
	ck_assert_uint_gt(work(1, 100), 10);
	ck_assert_uint_gt(store_stats(&s).corrupt, 10);
	ck_assert_uint_eq(store_stats(&s).state, KVT_TIER_WORKS);
	works_again();
}
END_TEST

START_TEST(flipped_bits_of_the_log)
{
	for (uint64_t n = 1; n <= 100; n++)
		ck_assert_int_eq(store_put(&s, n), KVT_OK);
	ck_assert_int_eq(store_erase(&s, 50), KVT_OK);
	ck_assert_int_eq(store_flush(&s), KVT_OK);
	for (unsigned i = 0; i < 40; i++) {
		struct kvt_fault_rule r = {
			.kind = KVT_FAULT_FLIP, .on = KVT_ON_READ, .name = "log", .count = 1};
		enum kvt_status status;

		ck_assert_int_eq(kvt_faults_add(faults, &r), KVT_OK);
		store_close(&s);
		status = store_open(&s);
		kvt_faults_clear(faults);
		ck_assert_int_eq(status, KVT_OK);
		for (uint64_t n = 1; n <= 100; n++) {
			enum kvt_status get = store_get(&s, n);

			ck_assert(get == KVT_OK || get == KVT_MISS);
			if (n == 50)
				ck_assert_int_eq(get, KVT_MISS);
		}
		for (uint64_t n = 1; n <= 100; n++) {
			if (n != 50)
				(void)store_put(&s, n);
		}
		ck_assert_int_eq(store_flush(&s), KVT_OK);
	}
}
END_TEST

START_TEST(syncs_that_fail)
{
	rule(KVT_FAULT_ERROR, KVT_ON_SYNC, "data", 0.5, EIO);
	for (uint64_t n = 1; n <= 50; n++) {
		struct kvt_item item = {.size = sizeof(item)};
		enum kvt_status status = store_put_item(&s, n, &item, true);

		ck_assert(status == KVT_OK || status == KVT_EIO);
		/* What is not durable is not there: no caller was promised that it is. */
		ck_assert_int_eq(store_has(&s, n), status == KVT_OK);
	}
	works_again();
}
END_TEST

/* Pages that a failed sync leaves marked clean may be those of a chunk that was written meanwhile;
 * the next sync, which succeeds, proves nothing about them. */
START_TEST(what_was_written_during_a_sync_that_fails_is_dropped)
{
	const struct kvt_fault_rule late = {.kind = KVT_FAULT_STALL,
		.on = KVT_ON_SYNC,
		.name = "data",
		.count = 1,
		.delay_ns = INT64_MAX};
	const struct kvt_fault_rule fails = {
		.kind = KVT_FAULT_ERROR, .on = KVT_ON_SYNC, .name = "data", .count = 1};
	struct kvt_faults *stalls;
	struct wish *first;

	make(0);
	ck_assert_int_eq(kvt_faults_add(faults, &fails), KVT_OK);
	ck_assert_int_eq(kvt_faults_create(layer, 7, &s.time, &stalls), KVT_OK);
	layer = kvt_faults_layer(stalls);
	ck_assert_int_eq(kvt_faults_add(stalls, &late), KVT_OK);
	ck_assert_int_eq(store_open(&s), KVT_OK);
	first = wish_new(&s, KVT_TIER_WRITE, 1, 0);
	first->request.announce = true;
	s.tier->ops->submit(s.tier, &first->request);
	store_step(&s, 20);
	store_advance(&s, 1000000000);
	store_step(&s, 20);
	ck_assert_uint_eq(kvt_faults_struck(stalls, KVT_FAULT_STALL), 1);
	ck_assert(!first->done);
	ck_assert_int_eq(store_put(&s, 2), KVT_OK);
	ck_assert(store_has(&s, 2));
	kvt_faults_clear(stalls);
	ck_assert_int_eq(wish_wait(&s, first), KVT_EIO);
	wish_free(first);
	ck_assert_uint_eq(kvt_faults_struck(faults, KVT_FAULT_ERROR), 1);
	ck_assert(!store_has(&s, 1));
	ck_assert(!store_has(&s, 2));
	works_again();
	store_close(&s);
	kvt_faults_destroy(stalls);
}
END_TEST

/* The length of a file that could not be asked for is unknown: it is no reason to remove it. */
START_TEST(a_data_file_that_cannot_be_looked_at_stays)
{
	ck_assert_int_eq(store_put(&s, 1), KVT_OK);
	ck_assert_int_eq(store_flush(&s), KVT_OK);
	store_close(&s);
	rule(KVT_FAULT_ERROR, KVT_ON_INFO, "data", 0, EIO);
	ck_assert_int_ne(store_open(&s), KVT_OK);
	kvt_faults_clear(faults);
	ck_assert_int_eq(store_open(&s), KVT_OK);
	ck_assert_int_eq(store_get(&s, 1), KVT_OK);
}
END_TEST

START_TEST(a_log_that_fails)
{
	for (uint64_t n = 1; n <= 20; n++)
		ck_assert_int_eq(store_put(&s, n), KVT_OK);
	ck_assert_int_eq(store_flush(&s), KVT_OK);
	rule(KVT_FAULT_ERROR, KVT_ON_SYNC | KVT_ON_WRITE | KVT_ON_OPEN, "log", 0, EIO);
	ck_assert_int_eq(store_erase(&s, 7), KVT_OK);
	ck_assert_int_eq(store_flush(&s), KVT_EIO); /* gone, but not known to be durable */
	ck_assert_int_eq(store_get(&s, 7), KVT_MISS);
	ck_assert_int_eq(store_get(&s, 8), KVT_OK);
	store_step(&s, 5);
	ck_assert_uint_eq(store_stats(&s).state, KVT_TIER_PAUSED);
	ck_assert_int_eq(store_put(&s, 100), KVT_EIO);
	ck_assert_ptr_nonnull(strstr(store_stats(&s).reason, "log"));
	kvt_faults_clear(faults);
	store_advance(&s, 60000000000);
	store_step(&s, 100);
	ck_assert_int_eq(store_flush(&s), KVT_OK); /* now it is */
	works_again();
	ck_assert_int_eq(store_get(&s, 7), KVT_MISS);
	ck_assert_int_eq(store_get(&s, 8), KVT_OK);
}
END_TEST

/* The disk works again, but the next try at a log is not due yet: an end does not wait for it. */
START_TEST(what_was_erased_while_the_log_was_bad_stays_erased)
{
	for (uint64_t n = 1; n <= 5; n++)
		ck_assert_int_eq(store_put(&s, n), KVT_OK);
	ck_assert_int_eq(store_flush(&s), KVT_OK);
	rule(KVT_FAULT_ERROR, KVT_ON_SYNC | KVT_ON_WRITE | KVT_ON_OPEN, "log", 0, EIO);
	ck_assert_int_eq(store_erase(&s, 3), KVT_OK);
	ck_assert_int_eq(store_flush(&s), KVT_EIO);
	kvt_faults_clear(faults);
	store_close(&s);
	ck_assert_int_eq(store_open(&s), KVT_OK);
	ck_assert_int_eq(store_get(&s, 3), KVT_MISS);
	ck_assert_int_eq(store_get(&s, 4), KVT_OK);
}
END_TEST

START_TEST(a_device_that_is_gone)
{
	for (uint64_t n = 1; n <= 20; n++)
		ck_assert_int_eq(store_put(&s, n), KVT_OK);
	rule(KVT_FAULT_ERROR, KVT_ON_ALL, NULL, 0, EIO);
	ck_assert_uint_eq(work(1, 60), 0);
	ck_assert_int_eq(store_flush(&s), KVT_EIO);
	ck_assert_uint_ne(store_stats(&s).state, KVT_TIER_WORKS);
	ck_assert_uint_gt(strlen(store_stats(&s).reason), 0);
	works_again();
}
END_TEST

START_TEST(closes_while_nothing_works)
{
	for (uint64_t n = 1; n <= 5; n++)
		ck_assert_int_eq(store_put(&s, n), KVT_OK);
	rule(KVT_FAULT_ERROR, KVT_ON_ALL, NULL, 0, EIO);
	ck_assert_int_eq(store_erase(&s, 1), KVT_OK);
	store_close(&s);
	ck_assert_int_ne(store_open(&s), KVT_OK);
	ck_assert_uint_gt(strlen(s.why), 0);
	kvt_faults_clear(faults);
	ck_assert_int_eq(store_open(&s), KVT_OK);
	works_again();
}
END_TEST

START_TEST(a_stall_holds_only_itself)
{
	struct kvt_fault_rule r = {
		.kind = KVT_FAULT_STALL, .on = KVT_ON_READ, .count = 1, .delay_ns = INT64_MAX};
	struct wish *late;

	ck_assert_int_eq(store_put(&s, 1), KVT_OK);
	ck_assert_int_eq(store_put(&s, 2), KVT_OK);
	ck_assert_int_eq(kvt_faults_add(faults, &r), KVT_OK);
	late = wish_new(&s, KVT_TIER_READ, 1, 0);
	s.tier->ops->submit(s.tier, &late->request);
	store_step(&s, 20);
	ck_assert_int_eq(store_get(&s, 2), KVT_OK);
	ck_assert_int_eq(store_put(&s, 3), KVT_OK);
	ck_assert_int_eq(store_erase(&s, 1), KVT_OK);
	ck_assert_int_eq(store_flush(&s), KVT_OK);
	ck_assert(!late->done);
	ck_assert_int_eq(store_get(&s, 1), KVT_MISS);
	kvt_faults_clear(faults);
	/* Held before the erase, so it may still be given, and is right if it is. */
	ck_assert_int_eq(wish_wait(&s, late), KVT_OK);
	wish_free(late);
	works_again();
}
END_TEST

START_TEST(a_full_disk)
{
	make(8u << 20);
	ck_assert_int_eq(store_open(&s), KVT_OK); /* 64 MiB are allowed, 8 are there */
	ck_assert_uint_gt(work(1, 200), 150);
	ck_assert_uint_gt(store_stats(&s).evictions, 50);
	ck_assert_uint_eq(store_stats(&s).state, KVT_TIER_WORKS);
	works_again();
}
END_TEST

/* Nothing can be done before a write ends: it is not tried again and again. */
START_TEST(a_full_disk_rests_while_writes_are_under_way)
{
	const struct kvt_fault_rule late = {
		.kind = KVT_FAULT_STALL, .on = KVT_ON_WRITE, .name = "data", .delay_ns = INT64_MAX};
	struct wish *wishes[12];
	unsigned rounds = 0;
	int64_t next;

	teardown();
	make(8 << 20);
	ck_assert_int_eq(store_open(&s), KVT_OK);
	s.more_bytes = 900 << 10;
	ck_assert_int_eq(kvt_faults_add(faults, &late), KVT_OK);
	for (unsigned i = 0; i < 12; i++) {
		wishes[i] = wish_new(&s, KVT_TIER_WRITE, i + 1, 0);
		s.tier->ops->submit(s.tier, &wishes[i]->request);
	}
	while (s.tier->ops->step(s.tier, 0, &next) > 0)
		ck_assert_uint_lt(++rounds, 1000);
	kvt_faults_clear(faults);
	for (unsigned i = 0; i < 12; i++) {
		enum kvt_status status = wish_wait(&s, wishes[i]);

		ck_assert(status == KVT_OK || status == KVT_FULL || status == KVT_EIO);
		wish_free(wishes[i]);
	}
	s.more_bytes = 0;
}
END_TEST

START_TEST(everything_at_once)
{
	for (unsigned round = 0; round < 6; round++) {
		rule(KVT_FAULT_ERROR, KVT_ON_DATA, NULL, 0.05, EIO);
		rule(KVT_FAULT_ERROR, KVT_ON_RESERVE | KVT_ON_RENAME | KVT_ON_SYNC_FOLDER, NULL,
			0.2, ENOSPC);
		rule(KVT_FAULT_SHORT, KVT_ON_READ | KVT_ON_WRITE, NULL, 0.05, 0);
		rule(KVT_FAULT_FLIP, KVT_ON_READ, "data", 0.05, 0);
		for (uint64_t n = 1 + round * 50; n <= 100 + round * 50; n++) {
			(void)store_put(&s, n);
			(void)store_get(&s, n - 20);
			if (n % 7 == 0)
				(void)store_erase(&s, n);
			if (n % 11 == 0)
				(void)store_flush(&s);
		}
		works_again();
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("cache-tiers-faults");
	TCase *tc = tcase_create("faults");
	TCase *full = tcase_create("full");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, errors_of_data);
	tcase_add_test(tc, short_transfers);
	tcase_add_test(tc, flipped_bits);
	tcase_add_test(tc, flipped_bits_of_the_log);
	tcase_add_test(tc, syncs_that_fail);
	tcase_add_test(tc, a_data_file_that_cannot_be_looked_at_stays);
	tcase_add_test(tc, a_log_that_fails);
	tcase_add_test(tc, what_was_erased_while_the_log_was_bad_stays_erased);
	tcase_add_test(tc, a_device_that_is_gone);
	tcase_add_test(tc, closes_while_nothing_works);
	tcase_add_test(tc, a_stall_holds_only_itself);
	tcase_add_test(tc, a_full_disk_rests_while_writes_are_under_way);
	tcase_add_test(tc, everything_at_once);
	suite_add_tcase(suite, tc);
	tcase_add_checked_fixture(full, NULL, teardown);
	tcase_set_timeout(full, 60);
	tcase_add_test(full, a_full_disk);
	tcase_add_test(full, what_was_written_during_a_sync_that_fails_is_dropped);
	suite_add_tcase(suite, full);
	return run_suite(suite);
}
