/*
 * sync_test.c - what sync_folder asks of the machine: lengths that no sync has covered, and no more.
 *
 * The linker sends fsync and fdatasync here, where they are counted and may fail.
 */
#include <check.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"
#include "io/machine.h"
#include "tests/unit/suite.h"

int __real_fsync(int fd);
int __real_fdatasync(int fd);
int __wrap_fsync(int fd);
int __wrap_fdatasync(int fd);

static _Atomic int fsyncs, failing;

int __wrap_fsync(int fd)
{
	atomic_fetch_add(&fsyncs, 1);
	if (atomic_load(&failing) > 0) {
		errno = EIO;
		return -1;
	}
	return __real_fsync(fd);
}

int __wrap_fdatasync(int fd)
{
	if (atomic_load(&failing) > 0) {
		errno = EIO;
		return -1;
	}
	return __real_fdatasync(fd);
}

static struct folder folder;
static struct kvt_io *io;
static struct kvt_file *file;

static void setup(void)
{
	struct kvt_io_options options = {.mode = "threads", .depth = 2};

	folder_begin(&folder, NULL);
	io = layer_open(kvt_io_machine(), folder.path, &options);
	file = must_open(io, "f", KVT_OPEN_CREATE, true);
	atomic_store(&fsyncs, 0);
}

static void teardown(void)
{
	if (file != NULL)
		io->ops->close(io, file);
	io->ops->destroy(io);
	folder_end(&folder);
}

/* fsyncs that a sync_folder makes. */
static int cost(void)
{
	atomic_store(&fsyncs, 0);
	ck_assert_int_eq(io->ops->sync_folder(io), KVT_OK);
	return atomic_load(&fsyncs);
}

START_TEST(a_length_is_synced_with_the_folder)
{
	ck_assert_int_eq(cost(), 1);
	ck_assert_int_eq(io->ops->reserve(io, file, 1 << 20), KVT_OK);
	ck_assert_int_eq(cost(), 2);
	ck_assert_int_eq(cost(), 1);
	ck_assert_int_eq(io->ops->truncate(io, file, 1 << 10), KVT_OK);
	ck_assert_int_eq(cost(), 2);
}
END_TEST

START_TEST(a_length_that_was_synced_is_not_again)
{
	ck_assert_int_eq(io->ops->reserve(io, file, 1 << 20), KVT_OK);
	ck_assert_int_eq(once(io, KVT_IO_SYNC, file, 0, NULL, 0), 0);
	ck_assert_int_eq(cost(), 1);
}
END_TEST

START_TEST(a_sync_does_not_cover_what_came_after_it)
{
	struct kvt_io_op first = {.kind = KVT_IO_SYNC, .file = file}, second = first, *back[2];

	io->ops->submit(io, &first);
	ck_assert_int_eq(io->ops->reserve(io, file, 1 << 20), KVT_OK);
	io->ops->submit(io, &second);
	reap_all(io, 2, back);
	ck_assert_int_eq(cost(), 2); /* the first that came back may not have covered it */
}
END_TEST

START_TEST(a_sync_that_failed_covers_nothing)
{
	ck_assert_int_eq(io->ops->reserve(io, file, 1 << 20), KVT_OK);
	atomic_store(&failing, 1);
	ck_assert_int_eq(once(io, KVT_IO_SYNC, file, 0, NULL, 0), -EIO);
	ck_assert_int_eq(io->ops->sync_folder(io), KVT_EIO);
	ck_assert_ptr_nonnull(strstr(io->ops->why(io), "sync f"));
	atomic_store(&failing, 0);
	ck_assert_int_eq(cost(), 2);
}
END_TEST

START_TEST(a_failure_while_closing_is_not_lost)
{
	ck_assert_int_eq(io->ops->reserve(io, file, 1 << 20), KVT_OK);
	atomic_store(&failing, 1);
	io->ops->close(io, file);
	file = NULL;
	atomic_store(&failing, 0);
	ck_assert_int_eq(io->ops->sync_folder(io), KVT_EIO);
	ck_assert_int_eq(io->ops->sync_folder(io), KVT_OK); /* reported once */
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("sync");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, a_length_is_synced_with_the_folder);
	tcase_add_test(tc, a_length_that_was_synced_is_not_again);
	tcase_add_test(tc, a_sync_does_not_cover_what_came_after_it);
	tcase_add_test(tc, a_sync_that_failed_covers_nothing);
	tcase_add_test(tc, a_failure_while_closing_is_not_lost);
	return run_tcase("sync", tc);
}
