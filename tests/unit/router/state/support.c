/* support.c - snapshots in memory, for the tests of the format and of what reads it. */
#include "support.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int memory_file(void)
{
	int fd = memfd_create("snapshot", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	return fd;
}

struct bytes bytes_of(int fd)
{
	off_t len = lseek(fd, 0, SEEK_END);
	struct bytes bytes = {malloc((size_t)len + 1), (size_t)len};

	ck_assert_ptr_nonnull(bytes.data);
	ck_assert_int_eq(pread(fd, bytes.data, bytes.len, 0), len);
	return bytes;
}

int file_of(const void *data, size_t len)
{
	int fd = memory_file();

	ck_assert_int_eq(write(fd, data, len), (ssize_t)len);
	ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

struct bytes small_snapshot(void)
{
	static struct kvw_state_writer writer;
	struct bytes bytes;
	int fd = memory_file();

	ck_assert_int_eq(kvw_state_write_begin(&writer, fd, 1 << 20, 1234567, 42), KVW_OK);
	ck_assert_int_eq(kvw_state_write(&writer, KVW_KEPT_WORKER, "http://one", 10), KVW_OK);
	ck_assert_int_eq(kvw_state_write(&writer, KVW_KEPT_WORKER, "", 0), KVW_OK);
	ck_assert_int_eq(kvw_state_write(&writer, KVW_KEPT_SESSION, "session", 7), KVW_OK);
	ck_assert_int_eq(kvw_state_write_end(&writer), KVW_OK);
	bytes = bytes_of(fd);
	ck_assert_uint_eq(bytes.len, writer.summary.bytes);
	close(fd);
	return bytes;
}

enum kvw_err read_bytes(const void *data, size_t len, char why[KVW_STATE_WHY])
{
	static struct kvw_state_reader reader;
	int fd = file_of(data, len);
	enum kvw_err err = kvw_state_read_all(&reader, fd, 1 << 20);

	memcpy(why, reader.why, KVW_STATE_WHY);
	close(fd);
	return err;
}
