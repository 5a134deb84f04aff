/*
 * engine_test.c - how a transfer that was cut short or interrupted goes on, and what a lack of
 * memory does to the layers.
 *
 * The linker sends calloc here.
 */
#include <check.h>
#include <errno.h>
#include <stdlib.h>

#include "io/engine.h"
#include "files.h"
#include "io/machine.h"
#include "io/testing/test_disk.h"
#include "io/testing/test_faults.h"
#include "tests/unit/suite.h"

void *__real_calloc(size_t count, size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);

static int until_failure = -1; /* calls that still succeed; -1: all do */

void *__wrap_calloc(size_t count, size_t bytes)
{
	if (until_failure == 0)
		return NULL;
	until_failure -= until_failure > 0;
	return __real_calloc(count, bytes);
}

static struct kvt_machine_file plain = {.fd = -1, .alignment = 1};
static struct kvt_machine_file direct = {.fd = -1, .alignment = 512, .direct = true};

static struct kvt_io_op reading(struct kvt_machine_file *file, uint64_t offset, size_t bytes)
{
	struct kvt_io_op op = {.kind = KVT_IO_READ, .file = (struct kvt_file *)file,
		.offset = offset, .piece_count = 1};

	op.pieces[0].iov_len = bytes;
	return op;
}

START_TEST(the_rest_begins_where_the_transfer_stopped)
{
	char memory[400];
	struct kvt_io_op op = {.kind = KVT_IO_READ, .piece_count = 4};
	struct iovec out[KVT_IO_MAX_PIECES];

	op.pieces[0] = (struct iovec){memory, 100};
	op.pieces[1] = (struct iovec){memory + 200, 50};
	op.pieces[2] = (struct iovec){memory + 250, 50}; /* lies behind the one before */
	op.pieces[3] = (struct iovec){memory + 100, 10};
	ck_assert_uint_eq(kvt_io_bytes(&op), 210);
	ck_assert_uint_eq(kvt_io_rest(&op, 0, out), 3);
	ck_assert_uint_eq(out[1].iov_len, 100);
	ck_assert_uint_eq(kvt_io_rest(&op, 100, out), 2);
	ck_assert_ptr_eq(out[0].iov_base, memory + 200);
	ck_assert_uint_eq(kvt_io_rest(&op, 160, out), 2);
	ck_assert_ptr_eq(out[0].iov_base, memory + 260);
	ck_assert_uint_eq(out[0].iov_len, 40);
	ck_assert_ptr_eq(out[1].iov_base, memory + 100);
	ck_assert_uint_eq(kvt_io_rest(&op, 210, out), 0);
}
END_TEST

START_TEST(a_short_transfer_goes_on_where_it_can)
{
	struct kvt_io_op op = reading(&plain, 7, 1000);
	uint64_t done = 0;
	uint32_t retries = 0;

	ck_assert_int_eq(kvt_io_settle(&op, 300, &done, &retries), KVT_IO_AGAIN);
	ck_assert_int_eq(kvt_io_settle(&op, 700, &done, &retries), KVT_IO_DONE);
	ck_assert_int_eq(op.result, 1000);
	done = 0;
	op = reading(&direct, 1024, 4096);
	ck_assert_int_eq(kvt_io_settle(&op, 512, &done, &retries), KVT_IO_AGAIN);
	ck_assert_int_eq(kvt_io_settle(&op, 100, &done, &retries), KVT_IO_DONE);
	ck_assert_int_eq(op.result, 612); /* the end of the file */
	done = 0;
	ck_assert_int_eq(kvt_io_settle(&op, 512, &done, &retries), KVT_IO_AGAIN);
	ck_assert_int_eq(kvt_io_settle(&op, 0, &done, &retries), KVT_IO_DONE);
	ck_assert_int_eq(op.result, 512);
}
END_TEST

START_TEST(an_interruption_is_no_error_unless_it_stays)
{
	static const int passing[] = {EINTR, EAGAIN, ECANCELED};
	struct kvt_io_op op = reading(&plain, 0, 1000);
	uint64_t done = 0;
	uint32_t retries = 0;

	for (int i = 0; i < KVT_IO_RETRIES; i++)
		ck_assert_int_eq(
			kvt_io_settle(&op, -passing[i % 3], &done, &retries), KVT_IO_AGAIN);
	ck_assert_int_eq(kvt_io_settle(&op, -EINTR, &done, &retries), KVT_IO_DONE);
	ck_assert_int_eq(op.result, -EINTR);
	retries = KVT_IO_RETRIES - 1;
	ck_assert_int_eq(kvt_io_settle(&op, -EINTR, &done, &retries), KVT_IO_AGAIN);
	ck_assert_int_eq(kvt_io_settle(&op, 10, &done, &retries), KVT_IO_AGAIN);
	ck_assert_int_eq(kvt_io_settle(&op, -EINTR, &done, &retries), KVT_IO_AGAIN); /* it moved */
	ck_assert_int_eq(kvt_io_settle(&op, -EIO, &done, &retries), KVT_IO_DONE);
	ck_assert_int_eq(op.result, -EIO);
}
END_TEST

/* Creates, opens, closes, destroys; the status of the first that failed. */
static enum kvt_status use(struct kvt_io_layer layer, const char *folder, const char *mode)
{
	struct kvt_io_options options = {.mode = mode, .depth = 2, .direct = true};
	struct kvt_io *io = NULL;
	struct kvt_file *file = NULL;
	enum kvt_status status = layer.create(layer.self, folder, &options, &io);

	if (status != KVT_OK)
		return status;
	status = io->ops->open(io, "f", KVT_OPEN_CREATE, true, &file);
	if (status == KVT_OK)
		io->ops->close(io, file);
	io->ops->destroy(io);
	return status;
}

/* Every allocation fails in turn: KVT_ENOMEM, nothing is lost or freed twice, then it works. */
static int fails_each_time(struct kvt_io_layer layer, const char *folder, const char *mode)
{
	enum kvt_status status = KVT_ENOMEM;
	int allocations = 0;

	for (; status != KVT_OK; allocations++) {
		until_failure = allocations;
		status = use(layer, folder, mode);
		until_failure = -1;
		ck_assert(status == KVT_OK || status == KVT_ENOMEM);
		ck_assert_int_lt(allocations, 100);
	}
	return allocations;
}

START_TEST(a_lack_of_memory_is_reported)
{
	struct folder folder;
	struct kvt_disk *disk = NULL;
	struct kvt_faults *faults = NULL;

	folder_begin(&folder, NULL);
	ck_assert_int_gt(fails_each_time(kvt_io_machine(), folder.path, "auto"), 2);
	ck_assert_int_gt(fails_each_time(kvt_io_machine(), folder.path, "threads"), 2);
	folder_end(&folder);
	ck_assert_int_eq(
		kvt_disk_create(&(struct kvt_disk_options){.record = true}, &disk), KVT_OK);
	ck_assert_int_eq(kvt_faults_create(kvt_disk_layer(disk), 1, NULL, &faults), KVT_OK);
	ck_assert_int_gt(fails_each_time(kvt_faults_layer(faults), "store", "auto"), 3);
	kvt_faults_destroy(faults);
	kvt_disk_destroy(disk);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("engine");

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, the_rest_begins_where_the_transfer_stopped);
	tcase_add_test(tc, a_short_transfer_goes_on_where_it_can);
	tcase_add_test(tc, an_interruption_is_no_error_unless_it_stays);
	tcase_add_test(tc, a_lack_of_memory_is_reported);
	return run_tcase("engine", tc);
}
