/*
 * file_test.c - the file of a snapshot: whose it is, how it is replaced, and what stays when that fails.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "state/file.h"
#include "support.h"
#include "tests/unit/suite.h"

static char folder[64], path[96], next_to_it[104], why[KVW_STATE_WHY];

static void setup(void)
{
	(void)snprintf(folder, sizeof(folder), "/tmp/kvw-state-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	(void)snprintf(path, sizeof(path), "%s/state", folder);
	(void)snprintf(next_to_it, sizeof(next_to_it), "%s.new", path);
}

static void teardown(void)
{
	(void)chmod(folder, 0700);
	(void)unlink(path);
	(void)unlink(next_to_it);
	ck_assert_int_eq(rmdir(folder), 0);
}

static void put(const char *name, const char *text, mode_t mode)
{
	int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	ck_assert_int_eq(fchmod(fd, mode), 0);
	close(fd);
}

static void expect_text(const char *text)
{
	char got[64];
	int fd = -1;
	ssize_t len;

	ck_assert_int_eq(kvw_state_file_open(path, 64, &fd, why), KVW_OK);
	len = read(fd, got, sizeof(got));
	ck_assert_int_eq(len, (ssize_t)strlen(text));
	ck_assert_mem_eq(got, text, strlen(text));
	close(fd);
}

START_TEST(it_is_replaced_as_a_whole)
{
	struct kvw_state_file file;
	struct stat found;

	put(path, "old", 0644);
	put(next_to_it, "left by one that was killed", 0666);
	ck_assert_int_eq(kvw_state_file_begin(path, &file, why), KVW_OK);
	ck_assert_int_eq(write(file.fd, "n", 1), 1);
	expect_text("old");
	ck_assert_int_eq(write(file.fd, "ew", 2), 2);
	ck_assert_int_eq(kvw_state_file_commit(&file, why), KVW_OK);
	expect_text("new");
	ck_assert_int_eq(stat(path, &found), 0);
	ck_assert_uint_eq(found.st_mode & 07777, 0600);
	ck_assert_int_ne(stat(next_to_it, &found), 0);
}
END_TEST

START_TEST(thrown_away_leaves_the_old_one)
{
	struct kvw_state_file file;
	struct stat found;

	put(path, "old", 0600);
	ck_assert_int_eq(kvw_state_file_begin(path, &file, why), KVW_OK);
	ck_assert_int_eq(write(file.fd, "n", 1), 1);
	kvw_state_file_abandon(&file);
	expect_text("old");
	ck_assert_int_ne(stat(next_to_it, &found), 0);
}
END_TEST

START_TEST(two_do_not_write_at_once)
{
	struct kvw_state_file file, other;

	ck_assert_int_eq(kvw_state_file_begin(path, &file, why), KVW_OK);
	ck_assert_int_eq(kvw_state_file_begin(path, &other, why), KVW_EAGAIN);
	ck_assert_str_eq(why, "another process writes it");
	ck_assert_int_eq(kvw_state_file_commit(&file, why), KVW_OK);
	ck_assert_int_eq(kvw_state_file_begin(path, &other, why), KVW_OK);
	kvw_state_file_abandon(&other);
}
END_TEST

START_TEST(none_is_no_mistake)
{
	int fd = -1;

	ck_assert_int_eq(kvw_state_file_open(path, 64, &fd, why), KVW_ENOTFOUND);
}
END_TEST

START_TEST(what_others_may_write_is_refused)
{
	int fd = -1;

	put(path, "text", 0620);
	ck_assert_int_eq(kvw_state_file_open(path, 64, &fd, why), KVW_EINVAL);
	ck_assert_str_eq(why, "other users may write it");
	ck_assert_int_eq(chmod(path, 0602), 0);
	ck_assert_int_eq(kvw_state_file_open(path, 64, &fd, why), KVW_EINVAL);
	ck_assert_int_eq(chmod(path, 0644), 0);
	expect_text("text");
}
END_TEST

START_TEST(what_is_no_plain_file_is_refused)
{
	struct kvw_state_file file;
	int fd = -1;

	ck_assert_int_eq(symlink("/dev/null", path), 0);
	ck_assert_int_eq(kvw_state_file_open(path, 64, &fd, why), KVW_EINVAL);
	ck_assert_str_eq(why, "a symbolic link");
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(kvw_state_file_open(path, 64, &fd, why), KVW_EINVAL);
	ck_assert_str_eq(why, "not a plain file");
	/* A link called PATH.new leads nowhere that is written to. */
	ck_assert_int_eq(symlink("/tmp/kvw-state-elsewhere", next_to_it), 0);
	ck_assert_int_eq(kvw_state_file_begin(path, &file, why), KVW_EIO);
	ck_assert_int_ne(access("/tmp/kvw-state-elsewhere", F_OK), 0);
}
END_TEST

START_TEST(one_of_another_user_is_refused)
{
	int fd = -1;

	if (geteuid() != 0)
		return; /* only root can give a file away */
	put(path, "text", 0600);
	ck_assert_int_eq(chown(path, 65534, 65534), 0);
	ck_assert_int_eq(kvw_state_file_open(path, 64, &fd, why), KVW_EINVAL);
	ck_assert_str_eq(why, "belongs to user 65534, kvway runs as user 0");
}
END_TEST

START_TEST(one_that_is_too_large_is_refused)
{
	int fd = -1;

	put(path, "12345", 0600);
	ck_assert_int_eq(kvw_state_file_open(path, 4, &fd, why), KVW_ELIMIT);
	ck_assert_str_eq(why, "has 5 bytes, state.max_bytes is 4");
}
END_TEST

START_TEST(where_it_cannot_be_written_is_said)
{
	struct kvw_state_file file;

	ck_assert(kvw_state_file_may_write(path, why));
	ck_assert(!kvw_state_file_may_write("/nowhere/state", why));
	ck_assert_str_eq(why, "its folder: No such file or directory");
	ck_assert(!kvw_state_file_may_write(folder, why));
	ck_assert_str_eq(why, "not a plain file");
	ck_assert_int_eq(kvw_state_file_begin("/nowhere/state", &file, why), KVW_EIO);
	ck_assert_str_eq(why, "cannot make PATH.new: No such file or directory");
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("file");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, it_is_replaced_as_a_whole);
	tcase_add_test(tcase, thrown_away_leaves_the_old_one);
	tcase_add_test(tcase, two_do_not_write_at_once);
	tcase_add_test(tcase, none_is_no_mistake);
	tcase_add_test(tcase, what_others_may_write_is_refused);
	tcase_add_test(tcase, what_is_no_plain_file_is_refused);
	tcase_add_test(tcase, one_of_another_user_is_refused);
	tcase_add_test(tcase, one_that_is_too_large_is_refused);
	tcase_add_test(tcase, where_it_cannot_be_written_is_said);
	return run_tcase("state file", tcase);
}
