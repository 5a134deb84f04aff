/*
 * faults_test.c - the layer that fails, lies and is late: each fault does what its rule says, where
 * it says so, and nothing elsewhere.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "io/testing/test_disk.h"
#include "io/testing/test_faults.h"
#include "tests/unit/suite.h"

#define PAGE ((int)KVT_DISK_PAGE)

static struct kvt_test_clock test_clock;
static struct kvt_disk *disk;
static struct kvt_faults *faults;
static struct kvt_io *io;
static unsigned char *bytes, *got;

static void setup(void)
{
	struct kvt_disk_options options = {.clock = &test_clock};
	struct kvt_io_options opening = {.depth = 8, .direct = true};

	ck_assert_int_eq(kvt_disk_create(&options, &disk), KVT_OK);
	ck_assert_int_eq(
		kvt_faults_create(kvt_disk_layer(disk), 3, &test_clock, &faults), KVT_OK);
	io = layer_open(kvt_faults_layer(faults), "store", &opening);
	bytes = filled(16 * PAGE, 1);
	got = filled(16 * PAGE, 2);
}

static void teardown(void)
{
	io->ops->destroy(io);
	kvt_faults_destroy(faults);
	kvt_disk_destroy(disk);
	free(bytes);
	free(got);
}

static void rule(struct kvt_fault_rule r)
{
	ck_assert_int_eq(kvt_faults_add(faults, &r), KVT_OK);
}

static int64_t write_all(struct kvt_file *file)
{
	return once(io, KVT_IO_WRITE, file, 0, bytes, 16 * PAGE);
}

static int64_t read_all(struct kvt_file *file)
{
	return once(io, KVT_IO_READ, file, 0, got, 16 * PAGE);
}

START_TEST(without_rules_nothing_happens)
{
	struct kvt_file *file = must_open(io, "f", KVT_OPEN_CREATE, true);

	ck_assert_int_eq(write_all(file), 16 * PAGE);
	ck_assert_int_eq(once(io, KVT_IO_SYNC, file, 0, NULL, 0), 0);
	ck_assert_int_eq(read_all(file), 16 * PAGE);
	ck_assert_mem_eq(bytes, got, 16 * PAGE);
	ck_assert_str_eq(io->ops->mode(io)->name, "memory");
	io->ops->close(io, file);
}
END_TEST

START_TEST(a_rule_is_for_the_nth_call_on_a_name)
{
	struct kvt_file *log = must_open(io, "log.1", KVT_OPEN_CREATE, true);
	struct kvt_file *data = must_open(io, "data.1", KVT_OPEN_CREATE, true);

	rule((struct kvt_fault_rule){.kind = KVT_FAULT_ERROR, .on = KVT_ON_WRITE, .name = "log.",
		.skip = 1, .count = 2});
	for (int i = 0; i < 5; i++) {
		ck_assert_int_eq(write_all(log), i == 1 || i == 2 ? -EIO : 16 * PAGE);
		ck_assert_int_eq(write_all(data), 16 * PAGE);
	}
	ck_assert_uint_eq(kvt_faults_struck(faults, KVT_FAULT_ERROR), 2);
	io->ops->close(io, log);
	io->ops->close(io, data);
}
END_TEST

/* After an error it is unknown what is there: nothing, a part, all. */
START_TEST(a_failed_write_leaves_anything)
{
	bool none = false, part = false, all = false;

	rule((struct kvt_fault_rule){.kind = KVT_FAULT_ERROR, .on = KVT_ON_WRITE});
	for (int i = 0; i < 60; i++) {
		struct kvt_file *file = must_open(io, "f", KVT_OPEN_CREATE, true);
		int64_t n;

		ck_assert_int_eq(io->ops->truncate(io, file, 0), KVT_OK);
		ck_assert_int_eq(write_all(file), -EIO);
		n = read_all(file);
		ck_assert_mem_eq(got, bytes, (size_t)n);
		none = none || n == 0;
		all = all || n == 16 * PAGE;
		part = part || (n > 0 && n < 16 * PAGE);
		io->ops->close(io, file);
	}
	ck_assert(none && part && all);
}
END_TEST

START_TEST(a_short_transfer_stops_on_the_way)
{
	struct kvt_file *file = must_open(io, "f", KVT_OPEN_CREATE, true);
	int64_t n;

	ck_assert_int_eq(write_all(file), 16 * PAGE);
	rule((struct kvt_fault_rule){.kind = KVT_FAULT_SHORT, .on = KVT_ON_READ | KVT_ON_WRITE});
	for (int i = 0; i < 50; i++) {
		fill(got, 16 * PAGE, 5);
		n = i % 2 == 0 ? read_all(file) : write_all(file);
		ck_assert_int_ge(n, 0);
		ck_assert_int_lt(n, 16 * PAGE);
		ck_assert_int_eq(n % PAGE, 0);
		if (i % 2 == 0)
			ck_assert_mem_eq(got, bytes, (size_t)n);
	}
	io->ops->close(io, file);
}
END_TEST

START_TEST(a_flip_is_one_bit_of_what_is_read)
{
	struct kvt_file *file = must_open(io, "f", KVT_OPEN_CREATE, true);
	unsigned bits = 0;

	ck_assert_int_eq(write_all(file), 16 * PAGE);
	rule((struct kvt_fault_rule){.kind = KVT_FAULT_FLIP, .on = KVT_ON_READ, .count = 1});
	ck_assert_int_eq(read_all(file), 16 * PAGE);
	for (size_t i = 0; i < 16 * PAGE; i++)
		bits += (unsigned)__builtin_popcount(bytes[i] ^ got[i]);
	ck_assert_uint_eq(bits, 1);
	ck_assert_int_eq(read_all(file), 16 * PAGE);
	ck_assert_mem_eq(bytes, got, 16 * PAGE);
	io->ops->close(io, file);
}
END_TEST

START_TEST(a_stall_ends_by_the_clock_or_by_clearing)
{
	struct kvt_file *file = must_open(io, "f", KVT_OPEN_CREATE, true);
	struct kvt_io_op op = {.kind = KVT_IO_READ, .file = file, .piece_count = 1}, *back;

	ck_assert_int_eq(write_all(file), 16 * PAGE);
	op.pieces[0] = (struct iovec){got, 16 * PAGE};
	memset(got, 0, 16 * PAGE);
	rule((struct kvt_fault_rule){.kind = KVT_FAULT_STALL, .on = KVT_ON_READ, .count = 1,
		.delay_ns = 60 * SECOND_NS});
	io->ops->submit(io, &op);
	ck_assert_uint_eq(io->ops->reap(io, &back, 1, 0), 0);
	ck_assert_int_eq(got[0], 0); /* its bytes are late too */
	kvt_test_clock_advance(&test_clock, 59 * SECOND_NS);
	ck_assert_uint_eq(io->ops->reap(io, &back, 1, 0), 0);
	ck_assert_uint_eq(io->ops->reap(io, &back, 1, 10 * SECOND_NS), 1);
	ck_assert_mem_eq(got, bytes, 16 * PAGE);
	ck_assert_int_eq(kvt_test_clock_now(&test_clock), 60 * SECOND_NS);

	rule((struct kvt_fault_rule){
		.kind = KVT_FAULT_STALL, .on = KVT_ON_DATA, .delay_ns = INT64_MAX});
	for (int kind = KVT_IO_READ; kind <= KVT_IO_WRITE; kind++) {
		op.kind = kind;
		io->ops->submit(io, &op);
		ck_assert_uint_eq(io->ops->reap(io, &back, 1, 3600 * SECOND_NS), 0);
		kvt_faults_clear(faults);
		ck_assert_uint_eq(io->ops->reap(io, &back, 1, SECOND_NS), 1);
		ck_assert_int_eq(op.result, 16 * PAGE);
		rule((struct kvt_fault_rule){
			.kind = KVT_FAULT_STALL, .on = KVT_ON_DATA, .delay_ns = INT64_MAX});
	}
	io->ops->close(io, file);
}
END_TEST

START_TEST(a_folder_can_vanish)
{
	struct kvt_io_options opening = {.depth = 1};
	struct kvt_io_layer layer = kvt_faults_layer(faults);
	struct kvt_file *file = must_open(io, "f", KVT_OPEN_CREATE, true), *none = NULL;
	struct kvt_io *other = NULL;
	struct kvt_io_file_info info;
	uint64_t left;
	int64_t owner;

	rule((struct kvt_fault_rule){.kind = KVT_FAULT_ERROR, .on = KVT_ON_ALL});
	ck_assert_int_eq(layer.create(layer.self, "store", &opening, &other), KVT_EIO);
	ck_assert_int_eq(io->ops->open(io, "g", KVT_OPEN_CREATE, true, &none), KVT_EIO);
	ck_assert_int_eq(io->ops->info(io, file, &info), KVT_EIO);
	ck_assert_int_eq(io->ops->reserve(io, file, PAGE), KVT_EIO);
	ck_assert_int_eq(io->ops->truncate(io, file, PAGE), KVT_EIO);
	ck_assert_int_eq(io->ops->remove(io, "f"), KVT_EIO);
	ck_assert_int_eq(io->ops->rename(io, "f", "g"), KVT_EIO);
	ck_assert_int_eq(io->ops->sync_folder(io), KVT_EIO);
	ck_assert_int_eq(io->ops->free_bytes(io, &left), KVT_EIO);
	ck_assert_int_eq(io->ops->lock(io, &owner), KVT_EIO);
	ck_assert_str_ne(io->ops->why(io), "");
	ck_assert_int_eq(write_all(file), -EIO);
	ck_assert_int_eq(once(io, KVT_IO_SYNC, file, 0, NULL, 0), -EIO);
	kvt_faults_clear(faults);
	rule((struct kvt_fault_rule){
		.kind = KVT_FAULT_ERROR, .on = KVT_ON_RESERVE, .error = ENOSPC});
	ck_assert_int_eq(io->ops->reserve(io, file, PAGE), KVT_FULL);
	ck_assert_int_eq(write_all(file), 16 * PAGE);
	io->ops->close(io, file);
}
END_TEST

START_TEST(chance_comes_from_the_seed)
{
	struct kvt_file *file = must_open(io, "f", KVT_OPEN_CREATE, true);
	int failed = 0;

	rule((struct kvt_fault_rule){
		.kind = KVT_FAULT_ERROR, .on = KVT_ON_WRITE, .chance = 0.25, .error = ENOSPC});
	for (int i = 0; i < 400; i++)
		failed += write_all(file) == -ENOSPC;
	ck_assert_int_gt(failed, 60);
	ck_assert_int_lt(failed, 140);
	io->ops->close(io, file);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("faults");

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, without_rules_nothing_happens);
	tcase_add_test(tc, a_rule_is_for_the_nth_call_on_a_name);
	tcase_add_test(tc, a_failed_write_leaves_anything);
	tcase_add_test(tc, a_short_transfer_stops_on_the_way);
	tcase_add_test(tc, a_flip_is_one_bit_of_what_is_read);
	tcase_add_test(tc, a_stall_ends_by_the_clock_or_by_clearing);
	tcase_add_test(tc, a_folder_can_vanish);
	tcase_add_test(tc, chance_comes_from_the_seed);
	return run_tcase("faults", tc);
}
