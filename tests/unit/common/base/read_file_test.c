/*
 * read_file_test.c - files, pipes and buffers that are too small for them.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/read_file.h"
#include "tests/unit/suite.h"

static const char words[] = "some words";
#define WORDS (sizeof(words) - 1)

/* A file that is gone once its descriptor is closed, read from its start. */
static int file_of(const char *text, char path[32])
{
	int fd;

	strcpy(path, "/tmp/read_file.XXXXXX");
	fd = mkstemp(path);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	ck_assert_int_eq(lseek(fd, 0, SEEK_SET), 0);
	return fd;
}

START_TEST(room_is_never_left)
{
	char buffer[WORDS + 8], path[32];
	size_t len = 99;
	int fd = file_of(words, path);

	memset(buffer, '#', sizeof(buffer));
	ck_assert_int_eq(kvw_read_all(fd, buffer, 4, &len), KVW_OK);
	ck_assert_uint_eq(len, 4);
	ck_assert_mem_eq(buffer, "some####", 8);
	ck_assert_int_eq(kvw_read_all(fd, buffer, sizeof(buffer), &len), KVW_OK);
	ck_assert_uint_eq(len, WORDS - 4);
	ck_assert_mem_eq(buffer, " words##", 8);
	ck_assert_int_eq(kvw_read_all(fd, buffer, sizeof(buffer), &len), KVW_OK);
	ck_assert_uint_eq(len, 0);
	close(fd);
	unlink(path);
}
END_TEST

START_TEST(a_pipe_is_read_to_its_end)
{
	char buffer[WORDS + 8];
	size_t len;
	int ends[2];

	ck_assert_int_eq(pipe(ends), 0);
	if (fork() == 0) {
		for (size_t i = 0; i < WORDS; i++) {
			if (write(ends[1], &words[i], 1) != 1)
				_exit(1);
			usleep(1000);
		}
		_exit(0);
	}
	close(ends[1]);
	ck_assert_int_eq(kvw_read_all(ends[0], buffer, sizeof(buffer), &len), KVW_OK);
	ck_assert_uint_eq(len, WORDS);
	ck_assert_mem_eq(buffer, words, WORDS);
	close(ends[0]);
}
END_TEST

START_TEST(what_cannot_be_read_is_an_error)
{
	int fd = open("/", O_RDONLY | O_DIRECTORY);
	char buffer[8];
	size_t len = 99;

	ck_assert_int_eq(kvw_read_all(fd, buffer, sizeof(buffer), &len), KVW_EIO);
	ck_assert_int_eq(errno, EISDIR);
	ck_assert_uint_eq(len, 0);
	close(fd);
}
END_TEST

START_TEST(a_file_is_a_text)
{
	char why[KVT_READ_FILE_WHY], path[32], *text;
	int fd = file_of(words, path);
	size_t len;

	text = kvt_read_file(path, WORDS, &len, why);
	ck_assert_str_eq(text, words);
	ck_assert_uint_eq(len, WORDS);
	free(text);
	ck_assert_ptr_null(kvt_read_file(path, WORDS - 1, &len, why));
	ck_assert_str_eq(why, "is longer than 9 bytes");
	close(fd);
	unlink(path);
	ck_assert_ptr_null(kvt_read_file(path, WORDS, &len, why));
	ck_assert_str_eq(why, "cannot be opened: No such file or directory");
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("read_file");

	tcase_add_test(tcase, room_is_never_left);
	tcase_add_test(tcase, a_pipe_is_read_to_its_end);
	tcase_add_test(tcase, what_cannot_be_read_is_an_error);
	tcase_add_test(tcase, a_file_is_a_text);
	return run_tcase("read_file", tcase);
}
