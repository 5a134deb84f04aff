/*
 * disk_test.c - the disk in memory: what it holds, and what is left of it after a kill or a loss of
 * power.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "io/testing/test_disk.h"
#include "tests/unit/suite.h"

#define PAGE KVT_DISK_PAGE

static struct kvt_disk *disk;
static struct kvt_io *io;

static void begin(const struct kvt_disk_options *options)
{
	struct kvt_io_options opening = {.depth = 8, .direct = true};

	ck_assert_int_eq(kvt_disk_create(options, &disk), KVT_OK);
	io = layer_open(kvt_disk_layer(disk), "store", &opening);
}

static void setup(void)
{
	begin(&(struct kvt_disk_options){.record = true, .seed = 7});
}

static void teardown(void)
{
	if (io != NULL)
		io->ops->destroy(io);
	kvt_disk_destroy(disk);
}

static struct kvt_disk *after(enum kvt_disk_end end, uint64_t moment, uint64_t seed)
{
	struct kvt_disk *found = NULL;

	ck_assert_int_eq(kvt_disk_after(disk, end, moment, seed, &found), KVT_OK);
	return found;
}

static bool there(struct kvt_disk *d, const char *name)
{
	return kvt_disk_peek(d, "store", name, 0, NULL, 0) == KVT_OK;
}

/* First byte of a page of a file; -1: not there. */
static int byte_at(struct kvt_disk *d, const char *name, uint64_t page)
{
	unsigned char byte;

	return kvt_disk_peek(d, "store", name, page * PAGE, &byte, 1) == KVT_OK ? byte : -1;
}

static void write_pages(
	struct kvt_file *file, uint64_t first, size_t pages, unsigned char with)
{
	unsigned char *bytes = filled(pages * PAGE, 1);

	memset(bytes, with, pages * PAGE);
	ck_assert_int_eq(once(io, KVT_IO_WRITE, file, first * PAGE, bytes, pages * PAGE),
		(int64_t)(pages * PAGE));
	free(bytes);
}

START_TEST(what_was_synced_stays)
{
	struct kvt_file *file = must_open(io, "f", KVT_OPEN_CREATE, true);

	ck_assert_int_eq(io->ops->reserve(io, file, 16 * PAGE), KVT_OK);
	write_pages(file, 0, 4, 1);
	ck_assert_int_eq(once(io, KVT_IO_SYNC, file, 0, NULL, 0), 0);
	ck_assert_int_eq(io->ops->sync_folder(io), KVT_OK);
	write_pages(file, 4, 4, 2);
	for (uint64_t seed = 0; seed < 300; seed++) {
		struct kvt_disk *found = after(KVT_DISK_POWER, kvt_disk_moment(disk), seed);

		for (uint64_t page = 0; page < 4; page++)
			ck_assert_int_eq(byte_at(found, "f", page), 1);
		for (uint64_t page = 4; page < 8; page++)
			ck_assert(byte_at(found, "f", page) == 0 || byte_at(found, "f", page) == 2);
		ck_assert_int_eq(byte_at(found, "f", 8), 0);
		kvt_disk_destroy(found);
	}
	io->ops->close(io, file);
}
END_TEST

/* All 16 mixtures of four pages come up, and a history is the same each time. */
START_TEST(what_was_not_synced_is_torn_every_way)
{
	struct kvt_file *file = must_open(io, "f", KVT_OPEN_CREATE, true);
	unsigned seen = 0;

	ck_assert_int_eq(io->ops->reserve(io, file, 4 * PAGE), KVT_OK);
	ck_assert_int_eq(io->ops->sync_folder(io), KVT_OK);
	write_pages(file, 0, 4, 3);
	for (uint64_t seed = 0; seed < 2000; seed++) {
		struct kvt_disk *found = after(KVT_DISK_POWER, kvt_disk_moment(disk), seed);
		struct kvt_disk *again = after(KVT_DISK_POWER, kvt_disk_moment(disk), seed);
		unsigned mixture = 0;

		for (uint64_t page = 0; page < 4; page++) {
			ck_assert_int_eq(
				byte_at(found, "f", page), byte_at(again, "f", page));
			mixture |= (unsigned)(byte_at(found, "f", page) == 3) << page;
		}
		seen |= 1u << mixture;
		kvt_disk_destroy(found);
		kvt_disk_destroy(again);
	}
	ck_assert_uint_eq(seen, 0xffff);
	io->ops->close(io, file);
}
END_TEST

START_TEST(a_page_has_one_of_its_versions)
{
	struct kvt_file *file = must_open(io, "f", KVT_OPEN_CREATE, false);
	unsigned char old_half[PAGE / 2], new_half[PAGE / 2], got[PAGE];
	unsigned seen = 0;

	ck_assert_int_eq(io->ops->sync_folder(io), KVT_OK);
	write_pages(file, 0, 1, 1);
	ck_assert_int_eq(once(io, KVT_IO_SYNC, file, 0, NULL, 0), 0);
	memset(old_half, 2, sizeof(old_half));
	memset(new_half, 3, sizeof(new_half));
	(void)once(io, KVT_IO_WRITE, file, 0, old_half, sizeof(old_half));
	(void)once(io, KVT_IO_WRITE, file, PAGE / 2, new_half, sizeof(new_half));
	for (uint64_t seed = 0; seed < 500; seed++) {
		struct kvt_disk *found = after(KVT_DISK_POWER, kvt_disk_moment(disk), seed);
		int kind;

		ck_assert_int_eq(kvt_disk_peek(found, "store", "f", 0, got, PAGE), KVT_OK);
		kind = got[0] * 4 + got[PAGE - 1];
		ck_assert(kind == 5 || kind == 9 || kind == 11); /* 1 1, 2 1, 2 3; never 1 3 */
		seen |= 1u << kind;
		kvt_disk_destroy(found);
	}
	ck_assert_uint_eq(seen, 1u << 5 | 1u << 9 | 1u << 11);
	io->ops->close(io, file);
}
END_TEST

/* A sync covers what had been reaped when it was submitted, nothing that was under way. */
START_TEST(a_sync_covers_what_was_reaped_before)
{
	struct kvt_file *file;
	unsigned char *bytes = filled(PAGE, 1);
	struct kvt_io_op write = {.kind = KVT_IO_WRITE, .piece_count = 1};
	struct kvt_io_op sync = {.kind = KVT_IO_SYNC}, *back[2];
	bool lost = false, kept = false;

	teardown();
	begin(&(struct kvt_disk_options){.record = true}); /* they finish as they came */
	write.file = sync.file = file = must_open(io, "f", KVT_OPEN_CREATE, true);
	memset(bytes, 9, PAGE);
	write.pieces[0] = (struct iovec){bytes, PAGE};
	ck_assert_int_eq(io->ops->sync_folder(io), KVT_OK);
	write.next = &sync;
	io->ops->submit(io, &write);
	reap_all(io, 2, back);
	for (uint64_t seed = 0; seed < 200; seed++) {
		struct kvt_disk *found = after(KVT_DISK_POWER, kvt_disk_moment(disk), seed);

		if (byte_at(found, "f", 0) == 9)
			kept = true;
		else
			lost = true;
		kvt_disk_destroy(found);
	}
	ck_assert(lost && kept);
	ck_assert_int_eq(once(io, KVT_IO_SYNC, file, 0, NULL, 0), 0);
	for (uint64_t seed = 0; seed < 200; seed++) {
		struct kvt_disk *found = after(KVT_DISK_POWER, kvt_disk_moment(disk), seed);

		ck_assert_int_eq(byte_at(found, "f", 0), 9);
		kvt_disk_destroy(found);
	}
	io->ops->close(io, file);
	free(bytes);
}
END_TEST

START_TEST(names_are_safe_by_the_folder_only)
{
	struct kvt_file *file = must_open(io, "old", KVT_OPEN_CREATE, true);
	bool seen_old = false, seen_new = false, seen_none = false;

	write_pages(file, 0, 1, 1);
	ck_assert_int_eq(once(io, KVT_IO_SYNC, file, 0, NULL, 0), 0);
	for (uint64_t seed = 0; seed < 200; seed++) {
		struct kvt_disk *found = after(KVT_DISK_POWER, kvt_disk_moment(disk), seed);

		seen_none = seen_none || !there(found, "old");
		kvt_disk_destroy(found);
	}
	ck_assert(seen_none);
	ck_assert_int_eq(io->ops->sync_folder(io), KVT_OK);
	ck_assert_int_eq(io->ops->rename(io, "old", "new"), KVT_OK);
	for (uint64_t seed = 0; seed < 200; seed++) {
		struct kvt_disk *found = after(KVT_DISK_POWER, kvt_disk_moment(disk), seed);

		ck_assert(there(found, "old") != there(found, "new"));
		seen_old = seen_old || there(found, "old");
		seen_new = seen_new || there(found, "new");
		ck_assert_int_eq(byte_at(found, there(found, "old") ? "old" : "new", 0), 1);
		kvt_disk_destroy(found);
	}
	ck_assert(seen_old && seen_new);
	io->ops->close(io, file);
}
END_TEST

START_TEST(a_removed_file_may_come_back)
{
	bool seen = false, gone = false;
	struct kvt_file *file = must_open(io, "f", KVT_OPEN_CREATE, true);

	write_pages(file, 0, 1, 5);
	ck_assert_int_eq(once(io, KVT_IO_SYNC, file, 0, NULL, 0), 0);
	io->ops->close(io, file);
	ck_assert_int_eq(io->ops->sync_folder(io), KVT_OK);
	ck_assert_int_eq(io->ops->remove(io, "f"), KVT_OK);
	ck_assert(!there(disk, "f"));
	for (uint64_t seed = 0; seed < 200; seed++) {
		struct kvt_disk *found = after(KVT_DISK_POWER, kvt_disk_moment(disk), seed);

		gone = gone || !there(found, "f");
		if (there(found, "f")) {
			seen = true;
			ck_assert_int_eq(byte_at(found, "f", 0), 5);
		}
		kvt_disk_destroy(found);
	}
	ck_assert(seen && gone);
	ck_assert_int_eq(io->ops->sync_folder(io), KVT_OK);
	for (uint64_t seed = 0; seed < 50; seed++) {
		struct kvt_disk *found = after(KVT_DISK_POWER, kvt_disk_moment(disk), seed);

		ck_assert(!there(found, "f"));
		kvt_disk_destroy(found);
	}
}
END_TEST

START_TEST(a_kill_loses_nothing_that_was_finished)
{
	struct kvt_file *file = must_open(io, "f", KVT_OPEN_CREATE, true);
	unsigned char *bytes = filled(PAGE, 1);
	struct kvt_io_op write = {.kind = KVT_IO_WRITE, .file = file, .piece_count = 1,
		.offset = 4 * PAGE}, *back;

	memset(bytes, 7, PAGE);
	write.pieces[0] = (struct iovec){bytes, PAGE};
	write_pages(file, 0, 4, 6);
	io->ops->submit(io, &write);
	for (uint64_t seed = 0; seed < 100; seed++) {
		struct kvt_disk *found = after(KVT_DISK_KILL, kvt_disk_moment(disk), seed);

		for (uint64_t page = 0; page < 4; page++)
			ck_assert_int_eq(byte_at(found, "f", page), 6);
		kvt_disk_destroy(found);
	}
	reap_all(io, 1, &back);
	io->ops->close(io, file);
	free(bytes);
}
END_TEST

/* At every moment of a history, a page holds a value that it had, or was about to get, no older than
 * the last that was safe. */
START_TEST(every_moment_of_a_history_is_possible)
{
	enum { PAGES = 6, STEPS = 120 };
	struct kvt_file *file = must_open(io, "f", KVT_OPEN_CREATE, true);
	uint64_t begun[STEPS + 1][PAGES], safe[STEPS + 1][PAGES], moments[STEPS + 1];
	uint64_t now[PAGES] = {0}, synced[PAGES] = {0}, random = 1;

	ck_assert_int_eq(io->ops->reserve(io, file, PAGES * PAGE), KVT_OK);
	ck_assert_int_eq(io->ops->sync_folder(io), KVT_OK);
	for (int step = 0; step <= STEPS; step++) {
		size_t page;

		moments[step] = kvt_disk_moment(disk);
		memcpy(begun[step], now, sizeof(now));
		memcpy(safe[step], synced, sizeof(synced));
		random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
		page = (random >> 33) % PAGES;
		if ((random >> 40) % 5 == 0) {
			ck_assert_int_eq(once(io, KVT_IO_SYNC, file, 0, NULL, 0), 0);
			memcpy(synced, now, sizeof(now));
		} else {
			write_pages(file, page, 1, (unsigned char)++now[page]);
		}
	}
	for (int i = 0; i < 2000; i++) {
		int step = i % (STEPS + 1);
		struct kvt_disk *found = after(KVT_DISK_POWER, moments[step], (uint64_t)i);

		for (size_t page = 0; page < PAGES; page++) {
			uint64_t value = (uint64_t)byte_at(found, "f", page);

			ck_assert_uint_ge(value, safe[step][page]);
			ck_assert_uint_le(value, begun[step][page]);
		}
		kvt_disk_destroy(found);
	}
	io->ops->close(io, file);
}
END_TEST

START_TEST(a_second_crash_builds_on_the_first)
{
	struct kvt_io_options opening = {.depth = 8, .direct = true};
	struct kvt_file *file = must_open(io, "f", KVT_OPEN_CREATE, true);
	struct kvt_disk *found;

	write_pages(file, 0, 2, 1);
	ck_assert_int_eq(once(io, KVT_IO_SYNC, file, 0, NULL, 0), 0);
	ck_assert_int_eq(io->ops->sync_folder(io), KVT_OK);
	io->ops->close(io, file);
	io->ops->destroy(io);
	found = after(KVT_DISK_POWER, kvt_disk_moment(disk), 1);
	kvt_disk_destroy(disk);
	disk = found;
	io = layer_open(kvt_disk_layer(disk), "store", &opening);
	file = must_open(io, "f", KVT_OPEN_WRITE, true);
	write_pages(file, 1, 1, 2);
	ck_assert_int_eq(once(io, KVT_IO_SYNC, file, 0, NULL, 0), 0);
	found = after(KVT_DISK_POWER, kvt_disk_moment(disk), 2);
	ck_assert_int_eq(byte_at(found, "f", 0), 1);
	ck_assert_int_eq(byte_at(found, "f", 1), 2);
	kvt_disk_destroy(found);
	io->ops->close(io, file);
}
END_TEST

START_TEST(folders_are_apart_and_have_one_owner)
{
	struct kvt_io_options opening = {.depth = 1};
	struct kvt_io *same = layer_open(kvt_disk_layer(disk), "store", &opening);
	struct kvt_io *other = layer_open(kvt_disk_layer(disk), "other", &opening);
	struct kvt_file *file = NULL;
	int64_t owner = 0;

	io->ops->close(io, must_open(io, "f", KVT_OPEN_CREATE, false));
	ck_assert_int_eq(other->ops->open(other, "f", KVT_OPEN_READ, false, &file), KVT_MISS);
	ck_assert_int_eq(io->ops->lock(io, &owner), KVT_OK);
	ck_assert_int_eq(same->ops->lock(same, &owner), KVT_ELOCKED);
	ck_assert_int_gt(owner, 0);
	ck_assert_int_eq(other->ops->lock(other, &owner), KVT_OK);
	same->ops->destroy(same);
	other->ops->destroy(other);
}
END_TEST

START_TEST(there_is_no_more_room_than_it_has)
{
	struct kvt_file *file;
	unsigned char *bytes = filled(4 * PAGE, 1);
	uint64_t left;

	teardown();
	begin(&(struct kvt_disk_options){.capacity = 8 * PAGE});
	file = must_open(io, "f", KVT_OPEN_CREATE, true);
	ck_assert_int_eq(io->ops->reserve(io, file, 9 * PAGE), KVT_FULL);
	ck_assert_int_eq(io->ops->reserve(io, file, 6 * PAGE), KVT_OK);
	ck_assert_int_eq(io->ops->free_bytes(io, &left), KVT_OK);
	ck_assert_uint_eq(left, 2 * PAGE);
	ck_assert_int_eq(once(io, KVT_IO_WRITE, file, 6 * PAGE, bytes, 4 * PAGE), -ENOSPC);
	ck_assert_int_eq(io->ops->truncate(io, file, PAGE), KVT_OK);
	ck_assert_int_eq(io->ops->free_bytes(io, &left), KVT_OK);
	ck_assert_uint_eq(left, 7 * PAGE);
	io->ops->close(io, file);
	free(bytes);
}
END_TEST

START_TEST(direct_files_want_alignment)
{
	struct kvt_file *file = must_open(io, "f", KVT_OPEN_CREATE, true);
	unsigned char *bytes = filled(2 * PAGE, 1);
	struct kvt_disk_stats stats;

	ck_assert_int_eq(once(io, KVT_IO_WRITE, file, 512, bytes, PAGE), -EINVAL);
	ck_assert_int_eq(once(io, KVT_IO_WRITE, file, 0, bytes, 100), -EINVAL);
	ck_assert_int_eq(once(io, KVT_IO_WRITE, file, 0, bytes + 8, PAGE), -EINVAL);
	kvt_disk_stats(disk, &stats);
	ck_assert_uint_eq(stats.misaligned, 3);
	io->ops->close(io, file);
	free(bytes);
}
END_TEST

START_TEST(memory_that_changes_under_way_is_noticed)
{
	struct kvt_file *file = must_open(io, "f", KVT_OPEN_CREATE, true);
	unsigned char *bytes = filled(PAGE, 1);
	struct kvt_io_op op = {.kind = KVT_IO_WRITE, .file = file, .piece_count = 1}, *back;
	struct kvt_disk_stats stats;

	op.pieces[0] = (struct iovec){bytes, PAGE};
	io->ops->submit(io, &op);
	bytes[17] ^= 1;
	reap_all(io, 1, &back);
	kvt_disk_stats(disk, &stats);
	ck_assert_uint_eq(stats.changed_under_way, 1);
	io->ops->close(io, file);
	free(bytes);
}
END_TEST

START_TEST(time_passes_by_waiting)
{
	struct kvt_test_clock clock = {.now_ns = 1000};
	struct kvt_io_op op = {.kind = KVT_IO_WRITE, .piece_count = 1}, *back;
	unsigned char *bytes = filled(PAGE, 1);

	teardown();
	begin(&(struct kvt_disk_options){.clock = &clock, .latency_ns = 5000,
		.bytes_per_second = PAGE * UINT64_C(1000000)}); /* a page takes 1 us */
	op.file = must_open(io, "f", KVT_OPEN_CREATE, true);
	op.pieces[0] = (struct iovec){bytes, PAGE};
	io->ops->submit(io, &op);
	ck_assert_uint_eq(io->ops->reap(io, &back, 1, 0), 0);
	ck_assert_uint_eq(io->ops->reap(io, &back, 1, 2000), 0);
	ck_assert_int_eq(kvt_test_clock_now(&clock), 3000);
	ck_assert_uint_eq(io->ops->reap(io, &back, 1, SECOND_NS), 1);
	ck_assert_int_eq(kvt_test_clock_now(&clock), 7000);
	io->ops->close(io, op.file);
	free(bytes);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("disk");

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, what_was_synced_stays);
	tcase_add_test(tc, what_was_not_synced_is_torn_every_way);
	tcase_add_test(tc, a_page_has_one_of_its_versions);
	tcase_add_test(tc, a_sync_covers_what_was_reaped_before);
	tcase_add_test(tc, names_are_safe_by_the_folder_only);
	tcase_add_test(tc, a_removed_file_may_come_back);
	tcase_add_test(tc, a_kill_loses_nothing_that_was_finished);
	tcase_add_test(tc, every_moment_of_a_history_is_possible);
	tcase_add_test(tc, a_second_crash_builds_on_the_first);
	tcase_add_test(tc, folders_are_apart_and_have_one_owner);
	tcase_add_test(tc, there_is_no_more_room_than_it_has);
	tcase_add_test(tc, direct_files_want_alignment);
	tcase_add_test(tc, memory_that_changes_under_way_is_noticed);
	tcase_add_test(tc, time_passes_by_waiting);
	return run_tcase("disk", tc);
}
