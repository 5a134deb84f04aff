/*
 * format_test.c - what was written is read, and nothing else: no byte may be missing, added or another.
 */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <xxhash.h>

#include "support.h"
#include "tests/unit/suite.h"

static struct kvw_state_writer writer;
static struct kvw_state_reader reader;
static char why[KVW_STATE_WHY];

START_TEST(what_was_written_is_read)
{
	struct bytes bytes = small_snapshot();
	int fd = file_of(bytes.data, bytes.len);
	const uint8_t *record;
	enum kvw_keep_kind kind;
	size_t len;

	ck_assert_int_eq(kvw_state_read_begin(&reader, fd, 1 << 20), KVW_OK);
	ck_assert_int_eq(reader.summary.written_ms, 1234567);
	ck_assert_str_eq(reader.summary.program, KVW_VERSION);
	ck_assert_int_eq(kvw_state_read(&reader, &kind, &record, &len), KVW_OK);
	ck_assert_int_eq(kind, KVW_KEPT_WORKER);
	ck_assert_uint_eq(len, 10);
	ck_assert_mem_eq(record, "http://one", 10);
	ck_assert_int_eq(kvw_state_read(&reader, &kind, &record, &len), KVW_OK);
	ck_assert_uint_eq(len, 0);
	ck_assert_int_eq(kvw_state_read(&reader, &kind, &record, &len), KVW_OK);
	ck_assert_int_eq(kind, KVW_KEPT_SESSION);
	ck_assert_mem_eq(record, "session", 7);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(kvw_state_read(&reader, &kind, &record, &len), KVW_ECLOSED);
	ck_assert_uint_eq(reader.summary.bytes, bytes.len);
	ck_assert_uint_eq(reader.summary.sections[KVW_KEPT_WORKER].records, 2);
	ck_assert_uint_eq(reader.summary.sections[KVW_KEPT_SESSION].frames, 1);
	close(fd);
	free(bytes.data);
}
END_TEST

/* A reader at the other end of a socket sees the end of the stream. */
START_TEST(a_stream_does_as_well_as_a_file)
{
	uint8_t record[KVW_KEPT_MOST];
	int ends[2];

	ck_assert_int_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
	memset(record, 7, sizeof(record));
	ck_assert_int_eq(kvw_state_write_begin(&writer, ends[0], 1 << 20, 1, 1), KVW_OK);
	for (int i = 0; i < 9; i++)
		ck_assert_int_eq(kvw_state_write(&writer, KVW_KEPT_NODE, record, sizeof(record)), KVW_OK);
	ck_assert_int_eq(kvw_state_write_end(&writer), KVW_OK);
	close(ends[0]);
	ck_assert_int_eq(kvw_state_read_all(&reader, ends[1], 1 << 20), KVW_OK);
	ck_assert_uint_eq(reader.summary.sections[KVW_KEPT_NODE].records, 9);
	ck_assert_uint_eq(reader.summary.sections[KVW_KEPT_NODE].frames, 3);
	close(ends[1]);
}
END_TEST

START_TEST(every_beginning_is_refused)
{
	struct bytes bytes = small_snapshot();

	ck_assert_int_eq(read_bytes(bytes.data, bytes.len, why), KVW_OK);
	for (size_t len = 0; len < bytes.len; len++) {
		ck_assert_int_eq(read_bytes(bytes.data, len, why), KVW_EPROTO);
		ck_assert_uint_gt(strlen(why), 0);
	}
	free(bytes.data);
}
END_TEST

START_TEST(every_flipped_bit_is_refused)
{
	struct bytes bytes = small_snapshot();

	for (size_t bit = 0; bit < bytes.len * 8; bit++) {
		bytes.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ck_assert_int_eq(read_bytes(bytes.data, bytes.len, why), KVW_EPROTO);
		bytes.data[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	free(bytes.data);
}
END_TEST

START_TEST(a_byte_too_many_is_refused)
{
	struct bytes bytes = small_snapshot();

	bytes.data[bytes.len] = 0;
	ck_assert_int_eq(read_bytes(bytes.data, bytes.len + 1, why), KVW_EPROTO);
	ck_assert_str_eq(why, "bytes after its end");
	free(bytes.data);
}
END_TEST

/* Frames have right checksums each, but stand in another order, or one is missing. */
START_TEST(frames_belong_where_they_are)
{
	struct bytes bytes = small_snapshot();
	size_t first = 24 + 10 + 2 + 2, second = 24 + 2 + 7;
	uint8_t *copy = malloc(bytes.len);

	memcpy(copy, bytes.data, bytes.len);
	memcpy(copy + 64, bytes.data + 64 + first, second);
	memcpy(copy + 64 + second, bytes.data + 64, first);
	ck_assert_int_eq(read_bytes(copy, bytes.len, why), KVW_EPROTO);
	memcpy(copy, bytes.data, 64);
	memcpy(copy + 64, bytes.data + 64 + first, bytes.len - 64 - first);
	ck_assert_int_eq(read_bytes(copy, bytes.len - first, why), KVW_EPROTO);
	free(copy);
	free(bytes.data);
}
END_TEST

/* Header: magic at 0, version at 8, order of bytes at 12, checksum at 56. */
static void put_header(uint8_t *data, size_t at, uint32_t value)
{
	uint64_t sum;

	memcpy(data + at, &value, sizeof(value));
	sum = XXH3_64bits(data, 56);
	memcpy(data + 56, &sum, sizeof(sum));
}

START_TEST(another_version_is_named)
{
	struct bytes bytes = small_snapshot();

	put_header(bytes.data, 8, KVW_STATE_VERSION + 1);
	ck_assert_int_eq(read_bytes(bytes.data, bytes.len, why), KVW_EPROTO);
	ck_assert_str_eq(why, "version 2 of the format, this kvway reads 1");
	free(bytes.data);
}
END_TEST

START_TEST(another_byte_order_is_named)
{
	struct bytes bytes = small_snapshot();

	put_header(bytes.data, 12, 0x04030201);
	ck_assert_int_eq(read_bytes(bytes.data, bytes.len, why), KVW_EPROTO);
	ck_assert_str_eq(why, "written by a machine of the other byte order");
	put_header(bytes.data, 12, 0x02010403);
	ck_assert_int_eq(read_bytes(bytes.data, bytes.len, why), KVW_EPROTO);
	free(bytes.data);
}
END_TEST

START_TEST(another_file_is_named)
{
	ck_assert_int_eq(read_bytes("", 0, why), KVW_EPROTO);
	ck_assert_str_eq(why, "not a snapshot of kvway");
	ck_assert_int_eq(read_bytes("keys:\n  - name: a\n", 18, why), KVW_EPROTO);
	ck_assert_str_eq(why, "not a snapshot of kvway");
}
END_TEST

START_TEST(no_more_bytes_than_allowed)
{
	struct bytes bytes = small_snapshot();
	int fd = file_of(bytes.data, bytes.len);

	ck_assert_int_eq(kvw_state_read_all(&reader, fd, bytes.len), KVW_OK);
	ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
	ck_assert_int_eq(kvw_state_read_all(&reader, fd, bytes.len - 1), KVW_ELIMIT);
	close(fd);
	fd = memory_file();
	for (size_t most = 0; most < bytes.len; most++) {
		enum kvw_err err = kvw_state_write_begin(&writer, fd, most, 1234567, 42);

		if (err == KVW_OK)
			err = kvw_state_write(&writer, KVW_KEPT_WORKER, "http://one", 10);
		if (err == KVW_OK)
			err = kvw_state_write(&writer, KVW_KEPT_WORKER, "", 0);
		if (err == KVW_OK)
			err = kvw_state_write(&writer, KVW_KEPT_SESSION, "session", 7);
		if (err == KVW_OK)
			err = kvw_state_write_end(&writer);
		ck_assert_int_eq(err, KVW_ELIMIT);
		ck_assert_uint_le(writer.summary.bytes, most);
	}
	close(fd);
	free(bytes.data);
}
END_TEST

START_TEST(a_full_disk_is_an_error)
{
	int fd = file_of("", 0);
	int ends[2];

	close(fd);
	ck_assert_int_eq(pipe(ends), 0);
	close(ends[0]);
	ck_assert_int_eq(kvw_state_write_begin(&writer, ends[1], 1 << 20, 1, 1), KVW_EIO);
	ck_assert_int_eq(writer.error, EPIPE);
	ck_assert_int_eq(kvw_state_write(&writer, KVW_KEPT_NODE, "x", 1), KVW_OK);
	ck_assert_int_eq(kvw_state_write_end(&writer), KVW_EIO);
	close(ends[1]);
}
END_TEST

START_TEST(a_record_that_is_too_long_is_not_written)
{
	static uint8_t record[KVW_KEPT_MOST + 1];
	int fd = memory_file();

	ck_assert_int_eq(kvw_state_write_begin(&writer, fd, 1 << 20, 1, 1), KVW_OK);
	ck_assert_int_eq(kvw_state_write(&writer, KVW_KEPT_NODE, record, sizeof(record)), KVW_EINVAL);
	ck_assert_int_eq(kvw_state_write(&writer, KVW_KEPT_END, record, 1), KVW_EINVAL);
	ck_assert_int_eq(kvw_state_write(&writer, KVW_KEPT_KINDS, record, 1), KVW_EINVAL);
	close(fd);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("format");

	signal(SIGPIPE, SIG_IGN);
	tcase_set_timeout(tcase, 120);
	tcase_add_test(tcase, what_was_written_is_read);
	tcase_add_test(tcase, a_stream_does_as_well_as_a_file);
	tcase_add_test(tcase, every_beginning_is_refused);
	tcase_add_test(tcase, every_flipped_bit_is_refused);
	tcase_add_test(tcase, a_byte_too_many_is_refused);
	tcase_add_test(tcase, frames_belong_where_they_are);
	tcase_add_test(tcase, another_version_is_named);
	tcase_add_test(tcase, another_byte_order_is_named);
	tcase_add_test(tcase, another_file_is_named);
	tcase_add_test(tcase, no_more_bytes_than_allowed);
	tcase_add_test(tcase, a_full_disk_is_an_error);
	tcase_add_test(tcase, a_record_that_is_too_long_is_not_written);
	return run_tcase("state format", tcase);
}
