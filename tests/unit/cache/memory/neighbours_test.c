/*
 * neighbours_test.c - caches that know what memory the others of their machine may still take: places, what
 * ends with a process, files that are no use.
 */
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/neighbours.h"
#include "tests/unit/suite.h"

#define GIB ((uint64_t)1 << 30)

static char folder[] = "/tmp/kvt-neighbours-XXXXXX";
static char own[128], path[160];

static void make_folder(void)
{
	strcpy(folder + strlen(folder) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(folder));
	snprintf(own, sizeof(own), "%s/kvtier-%u", folder, (unsigned)geteuid());
	snprintf(path, sizeof(path), "%s/caches", own);
}

static void remove_folder(void)
{
	unlink(path);
	rmdir(path);
	unlink(own);
	rmdir(own);
	rmdir(folder);
}

static struct kvt_machine look(uint32_t ranks)
{
	struct kvt_neighbours n;
	struct kvt_machine m = {0};

	kvt_neighbours_look(&n, folder, ranks, &m);
	kvt_neighbours_leave(&n);
	return m;
}

static void enter(struct kvt_neighbours *n, uint32_t ranks, uint64_t bytes)
{
	struct kvt_machine m = {0};

	kvt_neighbours_look(n, folder, ranks, &m);
	kvt_neighbours_enter(n, ranks, bytes);
}

START_TEST(test_what_others_have_not_touched)
{
	struct kvt_neighbours a, b, small;

	ck_assert_uint_eq(look(2).others, 0);
	enter(&a, 2, 4 * GIB);
	enter(&b, 1, GIB);
	enter(&small, 1, KVT_NEIGHBOURS_LEAST - 1);
	ck_assert_int_eq(small.fd, -1);
	ck_assert_uint_eq(look(2).others, 2);
	ck_assert_uint_eq(look(2).siblings, 1);
	ck_assert_uint_eq(look(2).untouched, 5 * GIB);
	kvt_neighbours_touch(&a, 3 * GIB);
	ck_assert_uint_eq(look(2).untouched, 2 * GIB);
	kvt_neighbours_touch(&a, 4 * GIB);
	kvt_neighbours_leave(&b);
	ck_assert_uint_eq(look(1).untouched, 0);
	ck_assert_uint_eq(look(1).siblings, 0);
	enter(&b, 1, 2 * GIB); /* its place is free again */
	ck_assert_uint_eq(b.slot, 1);
	ck_assert_uint_eq(look(1).untouched, 2 * GIB);
	kvt_neighbours_leave(&a);
	kvt_neighbours_leave(&b);
}
END_TEST

START_TEST(test_a_place_ends_with_its_process)
{
	struct kvt_neighbours n;
	int ready[2];
	char byte = 0;
	pid_t child;

	ck_assert_int_eq(pipe(ready), 0);
	child = fork();
	if (child == 0) {
		enter(&n, 1, 7 * GIB);
		(void)!write(ready[1], &byte, 1);
		pause();
		_exit(0);
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	ck_assert_uint_eq(look(1).untouched, 7 * GIB);
	ck_assert_uint_eq(look(1).siblings, 1); /* of the same session */
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	ck_assert_uint_eq(look(1).others, 0);
	close(ready[0]);
	close(ready[1]);
}
END_TEST

/* One that looked and has not entered yet is waited for, but not for ever. */
START_TEST(test_one_at_a_time)
{
	struct kvt_neighbours first;
	struct kvt_machine m = {0};

	kvt_neighbours_look(&first, folder, 1, &m);
	ck_assert_uint_eq(look(1).others, 0); /* after 0.2 s */
	kvt_neighbours_enter(&first, 1, GIB);
	ck_assert_uint_eq(look(1).others, 1);
	kvt_neighbours_leave(&first);
}
END_TEST

START_TEST(test_files_that_are_no_use)
{
	const uint64_t wild[3] = {UINT64_MAX, 1, 2}, upside[3] = {GIB, 2 * GIB, 2};
	struct kvt_neighbours n;
	int fd;

	enter(&n, 1, GIB);
	ck_assert_int_eq(pwrite(n.fd, wild, sizeof(wild), 0), sizeof(wild));
	ck_assert_uint_eq(look(1).untouched, 0);
	ck_assert_int_eq(pwrite(n.fd, upside, sizeof(upside), 0), sizeof(upside));
	ck_assert_uint_eq(look(1).untouched, 0);
	kvt_neighbours_leave(&n);
	fd = open(path, O_RDWR | O_TRUNC);
	ck_assert_int_eq(write(fd, wild, 5), 5);
	close(fd);
	ck_assert_uint_eq(look(1).others, 0);
	unlink(path);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	enter(&n, 1, GIB);
	ck_assert_int_eq(n.fd, -1);
	kvt_neighbours_touch(&n, 1);
	kvt_neighbours_leave(&n);
	rmdir(path);
	ck_assert_int_eq(symlink("/etc/passwd", path), 0);
	ck_assert_uint_eq(look(1).others, 0);
}
END_TEST

/* What look() says is in the way, if all goes on nevertheless. */
static const char *obstacle(void)
{
	static struct kvt_neighbours n;
	struct kvt_machine m = {0};

	kvt_neighbours_look(&n, folder, 1, &m);
	ck_assert_uint_eq(m.others, 0);
	ck_assert(n.fd >= 0 || strstr(n.why, own) != NULL);
	kvt_neighbours_leave(&n);
	return n.why;
}

START_TEST(test_what_another_user_may_touch_is_named_and_not_used)
{
	ck_assert_str_eq(obstacle(), "");
	ck_assert_int_eq(chmod(path, 0666), 0);
	ck_assert_ptr_nonnull(strstr(obstacle(), "/caches is open to other users (mode 666)"));
	ck_assert_int_eq(chmod(path, 0600), 0);
	ck_assert_int_eq(chmod(own, 0755), 0);
	ck_assert_ptr_nonnull(strstr(obstacle(), "is open to other users (mode 755)"));
	ck_assert_int_eq(chmod(own, 0700), 0);
	ck_assert_str_eq(obstacle(), "");
	if (geteuid() == 0) {
		ck_assert_int_eq(chown(path, 4242, 4242), 0);
		ck_assert_ptr_nonnull(
			strstr(obstacle(), "/caches belongs to another user (uid 4242)"));
		ck_assert_int_eq(chown(own, 4242, 4242), 0);
		ck_assert_ptr_nonnull(
			strstr(obstacle(), "belongs to another user (uid 4242): remove it"));
	}
	unlink(path);
	ck_assert_int_eq(rmdir(own), 0);
	ck_assert_int_eq(symlink("/tmp", own), 0);
	ck_assert_ptr_nonnull(strstr(obstacle(), "is no folder: remove it"));
}
END_TEST

int main(void)
{
	TCase *all = tcase_create("all");

	tcase_add_checked_fixture(all, make_folder, remove_folder);
	tcase_add_test(all, test_what_others_have_not_touched);
	tcase_add_test(all, test_a_place_ends_with_its_process);
	tcase_add_test(all, test_one_at_a_time);
	tcase_add_test(all, test_files_that_are_no_use);
	tcase_add_test(all, test_what_another_user_may_touch_is_named_and_not_used);
	return run_tcase("neighbours", all);
}
