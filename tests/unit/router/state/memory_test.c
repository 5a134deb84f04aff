/*
 * memory_test.c - records for another process: sealed, checked, and refused with a reason.
 */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "state/memory.h"
#include "tests/unit/suite.h"

#define MOST (1 << 20)

static char why[KVW_STATE_WHY];

/* *count records of eight bytes. */
static enum kvw_err keep(void *arg, const struct kvw_keep_out *out)
{
	enum kvw_err err = KVW_OK;

	for (uint64_t i = 0; err == KVW_OK && i < *(const uint64_t *)arg; i++)
		err = out->put(out->arg, KVW_KEPT_KEYS, &i, sizeof(i));
	return err;
}

static enum kvw_err run_out(void *arg, const struct kvw_keep_out *out)
{
	(void)arg;
	(void)out;
	return KVW_ENOMEM;
}

static int written(uint64_t count)
{
	int fd = -1;

	ck_assert_int_eq(kvw_state_memory_write("test", keep, &count, MOST, &fd, why), KVW_OK);
	ck_assert_int_ge(fd, 0);
	return fd;
}

START_TEST(it_is_read_as_written_and_cannot_be_changed)
{
	struct kvw_state_reader *reader;
	const uint8_t *record;
	enum kvw_keep_kind kind;
	uint64_t number, count = 0;
	size_t len;
	int fd = written(20000);

	ck_assert_int_eq(pwrite(fd, "x", 1, 100), -1);
	ck_assert_int_eq(errno, EPERM);
	ck_assert_int_ne(ftruncate(fd, 10), 0);
	ck_assert_int_eq(kvw_state_memory_read_take(fd, MOST, &reader, why), KVW_OK);
	for (; kvw_state_read(reader, &kind, &record, &len) == KVW_OK; count++) {
		ck_assert_int_eq(kind, KVW_KEPT_KEYS);
		ck_assert_uint_eq(len, sizeof(number));
		memcpy(&number, record, sizeof(number));
		ck_assert_uint_eq(number, count);
	}
	ck_assert_uint_eq(count, 20000);
	ck_assert(reader->ended);
	kvw_state_memory_close(reader);
}
END_TEST

START_TEST(limits_and_errors_leave_nothing)
{
	uint64_t many = 200000;
	int fd = -7;

	ck_assert_int_eq(kvw_state_memory_write("test", keep, &many, MOST, &fd, why), KVW_ELIMIT);
	ck_assert_ptr_nonnull(strstr(why, "state.max_bytes"));
	ck_assert_int_eq(kvw_state_memory_write("test", run_out, NULL, MOST, &fd, why), KVW_ENOMEM);
	ck_assert_str_eq(why, "out of memory");
	ck_assert_int_eq(fd, -7);
}
END_TEST

START_TEST(what_is_damaged_or_too_large_is_refused)
{
	struct kvw_state_reader *reader = NULL;
	uint8_t bytes[4096];
	int fd = written(100);
	ssize_t len = pread(fd, bytes, sizeof(bytes), 0);

	ck_assert_int_gt(len, 0);
	ck_assert_int_ne(kvw_state_memory_read_take(fd, 512, &reader, why), KVW_OK);
	ck_assert_ptr_nonnull(strstr(why, "state.max_bytes"));
	for (ssize_t i = 0; i < len; i += 7) {
		fd = memfd_create("damaged", MFD_CLOEXEC);
		bytes[i] ^= 64;
		ck_assert_int_eq(write(fd, bytes, (size_t)len), len);
		bytes[i] ^= 64;
		why[0] = '\0';
		ck_assert_int_eq(kvw_state_memory_read_take(fd, MOST, &reader, why), KVW_EPROTO);
		ck_assert_uint_gt(strlen(why), 0);
	}
	ck_assert_int_eq(kvw_state_memory_read_take(memfd_create("empty", MFD_CLOEXEC), MOST, &reader, why), KVW_EPROTO);
	ck_assert_str_eq(why, "not a snapshot of kvway");
	ck_assert_ptr_null(reader);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("memory");

	tcase_add_test(tcase, it_is_read_as_written_and_cannot_be_changed);
	tcase_add_test(tcase, limits_and_errors_leave_nothing);
	tcase_add_test(tcase, what_is_damaged_or_too_large_is_refused);
	return run_tcase("state-memory", tcase);
}
