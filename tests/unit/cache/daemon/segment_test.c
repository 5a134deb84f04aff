/*
 * segment_test.c - the segment keeps its inode, its name and its promises, whatever happens to
 * daemon, clients, clocks and files.
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

#include "daemon/segment.h"
#include "tests/unit/suite.h"

#define MIB     ((uint64_t)1 << 20)
#define SECOND  1000000000ll
#define LONGEST (40 * SECOND)

/* One machine: its clocks, a segment's names, a folder for the side file. */
struct place {
	struct kvt_surroundings s;
	struct kvt_segment_options options;
	char name[64], path[80], hidden[96], folder[64], side[80];
	char why[KVT_REASON_BYTES], said[512];
	int64_t now_ns, wall_ns;
};

static int64_t now(void *self)
{
	return ((struct place *)self)->now_ns;
}

static int64_t wall(void *self)
{
	return ((struct place *)self)->wall_ns;
}

static void hear(void *self, uint32_t level, const char *line)
{
	(void)level;
	snprintf(((struct place *)self)->said, 512, "%s", line);
}

static void pass(struct place *p, int64_t ns)
{
	p->now_ns += ns;
	p->wall_ns += ns;
}

static void place_make(struct place *p)
{
	static int count;

	memset(p, 0, sizeof(*p));
	p->now_ns = 1000 * SECOND;
	p->wall_ns = 1800000000 * SECOND;
	p->s = (struct kvt_surroundings){.clock = {now, wall, p}, .log = hear, .log_self = p};
	snprintf(p->name, sizeof(p->name), "kvt-segment-test-%d-%d", (int)getpid(), count++);
	snprintf(p->path, sizeof(p->path), "/dev/shm/%s", p->name);
	snprintf(p->hidden, sizeof(p->hidden), "/dev/shm/.%s.kvtierd", p->name);
	strcpy(p->folder, "/tmp/kvt-segment-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(p->folder));
	snprintf(p->side, sizeof(p->side), "%s/side", p->folder);
	p->options = (struct kvt_segment_options){.name = p->name,
		.bytes = MIB,
		.side_path = p->side,
		.longest_lease_ns = LONGEST,
		.surroundings = &p->s};
}

static void place_clear(struct place *p)
{
	unlink(p->path);
	unlink(p->hidden);
	unlink(p->side);
	ck_assert_int_eq(rmdir(p->folder), 0);
}

static struct kvt_segment_file *opened(struct place *p)
{
	struct kvt_segment_file *s = NULL;

	ck_assert_msg(kvt_segment_open(&p->options, p->why, &s) == KVT_OK, "%s", p->why);
	return s;
}

static ino_t inode_of(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ? st.st_ino : 0;
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

static uint64_t quiet_left(struct place *p, struct kvt_segment_file *s)
{
	int64_t until = kvt_segment_quiet_until(s);

	ck_assert_int_eq(until != 0, kvt_segment_is_quiet(s));
	return until != 0 ? (uint64_t)(until - p->wall_ns) : 0;
}

/* --- the inode -------------------------------------------------------------------------------- */

START_TEST(a_new_segment_has_two_names_and_no_quiet_time)
{
	struct kvt_segment_stats stats;
	struct kvt_segment_file *s;
	struct place p;
	struct stat st;

	place_make(&p);
	p.options.mode = 0660;
	s = opened(&p);
	ck_assert_int_eq(fstat(kvt_segment_fd(s), &st), 0);
	ck_assert_int_eq(st.st_size, (off_t)MIB);
	ck_assert_int_eq(st.st_mode & 0777, 0660);
	ck_assert_uint_ge((uint64_t)st.st_blocks * 512, MIB); /* no SIGBUS later */
	ck_assert_uint_eq(inode_of(p.path), st.st_ino);
	ck_assert_uint_eq(inode_of(p.hidden), st.st_ino);
	ck_assert_uint_eq(quiet_left(&p, s), 0);
	ck_assert(kvt_segment_is_ours(s));
	ck_assert(!kvt_segment_tend(s));
	kvt_segment_stats(s, &stats);
	ck_assert_uint_eq(stats.bytes, MIB);
	ck_assert_uint_eq(stats.relinked, 0);
	kvt_segment_close(s);
	place_clear(&p);
}
END_TEST

START_TEST(it_is_the_same_inode_with_the_same_bytes_after_a_restart)
{
	struct kvt_segment_file *s;
	struct place p;
	ino_t inode;
	char byte = 'x';

	place_make(&p);
	s = opened(&p);
	inode = inode_of(p.path);
	ck_assert_int_eq(pwrite(kvt_segment_fd(s), &byte, 1, 4711), 1);
	kvt_segment_close(s);
	ck_assert_int_eq(unlink(p.path), 0); /* a client went meanwhile */
	s = opened(&p);
	ck_assert_uint_eq(inode_of(p.path), inode);
	ck_assert_int_eq(pread(kvt_segment_fd(s), &byte, 1, 4711), 1);
	ck_assert_int_eq(byte, 'x');
	kvt_segment_close(s);
	ck_assert_int_eq(unlink(p.hidden), 0); /* the other one */
	s = opened(&p);
	ck_assert_uint_eq(inode_of(p.path), inode);
	ck_assert_uint_eq(inode_of(p.hidden), inode);
	kvt_segment_close(s);
	place_clear(&p);
}
END_TEST

START_TEST(a_removed_name_comes_back)
{
	struct kvt_segment_stats stats;
	struct kvt_segment_file *s;
	struct place p;
	ino_t inode;

	place_make(&p);
	s = opened(&p);
	inode = inode_of(p.path);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(unlink(p.path), 0);
		ck_assert(kvt_segment_is_ours(s)); /* no client can open a wrong one */
		ck_assert(kvt_segment_tend(s));
		ck_assert_uint_eq(inode_of(p.path), inode);
	}
	ck_assert_int_eq(unlink(p.hidden), 0);
	ck_assert(!kvt_segment_tend(s));
	ck_assert_uint_eq(inode_of(p.hidden), inode);
	kvt_segment_stats(s, &stats);
	ck_assert_uint_eq(stats.relinked, 3);
	ck_assert(!stats.nameless);
	ck_assert_int_eq(unlink(p.hidden), 0);
	ck_assert_int_eq(unlink(p.path), 0);
	ck_assert(!kvt_segment_tend(s));
	kvt_segment_stats(s, &stats);
	ck_assert(stats.nameless);
	kvt_segment_close(s);
	place_clear(&p);
}
END_TEST

START_TEST(another_programs_file_is_left_alone)
{
	struct kvt_segment_stats stats;
	struct kvt_segment_file *s;
	struct place p;
	char text[8] = "";
	int fd;

	place_make(&p);
	s = opened(&p);
	ck_assert_int_eq(unlink(p.path), 0);
	write_file(p.path, "theirs");
	ck_assert(!kvt_segment_is_ours(s));
	ck_assert(!kvt_segment_tend(s));
	ck_assert_ptr_nonnull(strstr(p.said, "belongs to another program"));
	ck_assert(!kvt_segment_tend(s));
	kvt_segment_stats(s, &stats);
	ck_assert(stats.foreign);
	ck_assert_uint_eq(stats.taken, 1); /* one event, however often it is looked at */
	fd = open(p.path, O_RDONLY);
	ck_assert_int_eq(read(fd, text, 7), 6);
	ck_assert_str_eq(text, "theirs");
	close(fd);
	ck_assert_int_eq(unlink(p.path), 0);
	ck_assert(kvt_segment_tend(s));
	ck_assert(kvt_segment_is_ours(s));
	kvt_segment_stats(s, &stats);
	ck_assert(!stats.foreign);
	kvt_segment_close(s);
	place_clear(&p);
}
END_TEST

START_TEST(what_is_not_ours_is_refused_with_the_command_that_removes_it)
{
	struct kvt_segment_file *s = NULL;
	char command[160];
	struct place p;
	ino_t inode;

	place_make(&p);
	write_file(p.path, "theirs");
	inode = inode_of(p.path);
	ck_assert_int_eq(kvt_segment_open(&p.options, p.why, &s), KVT_EFORMAT);
	snprintf(command, sizeof(command), "rm %s", p.path);
	ck_assert_msg(strstr(p.why, command) != NULL, "%s", p.why);
	ck_assert_uint_eq(inode_of(p.path), inode);
	ck_assert_uint_eq(inode_of(p.hidden), 0);
	ck_assert_int_eq(unlink(p.path), 0);
	kvt_segment_close(opened(&p));
	inode = inode_of(p.path);
	p.options.bytes = 2 * MIB;
	ck_assert_int_eq(kvt_segment_open(&p.options, p.why, &s), KVT_EFORMAT);
	ck_assert_msg(
		strstr(p.why, "another size") != NULL && strstr(p.why, "rm ") != NULL, "%s", p.why);
	ck_assert_uint_eq(inode_of(p.path), inode);
	p.options.bytes = MIB;
	kvt_segment_close(opened(&p)); /* untouched by the refusal */
	ck_assert_int_eq(unlink(p.path), 0);
	write_file(p.path, "theirs"); /* our second link stays */
	ck_assert_int_eq(kvt_segment_open(&p.options, p.why, &s), KVT_EFORMAT);
	ck_assert_ptr_null(s);
	place_clear(&p);
}
END_TEST

START_TEST(one_owner_at_a_time)
{
	struct kvt_segment_file *s, *second = NULL;
	char side[96], pid[32];
	struct place p;

	place_make(&p);
	s = opened(&p);
	ck_assert_int_eq(kvt_segment_open(&p.options, p.why, &second), KVT_ELOCKED);
	snprintf(pid, sizeof(pid), "pid %d", (int)getpid());
	ck_assert_msg(strstr(p.why, pid) != NULL, "%s", p.why);
	snprintf(side, sizeof(side), "%s2", p.side); /* with another side file, too */
	p.options.side_path = side;
	ck_assert_int_eq(kvt_segment_open(&p.options, p.why, &second), KVT_ELOCKED);
	ck_assert_ptr_null(second);
	ck_assert_uint_ne(inode_of(p.hidden), 0);
	unlink(side);
	kvt_segment_close(s);
	place_clear(&p);
}
END_TEST

START_TEST(what_another_user_may_touch_is_named_and_not_used)
{
	struct kvt_segment_file *s = NULL;
	struct place p;

	place_make(&p);
	write_file(p.side, "");
	ck_assert_int_eq(chmod(p.side, 0666), 0);
	ck_assert_int_eq(kvt_segment_open(&p.options, p.why, &s), KVT_EIO);
	ck_assert_msg(strstr(p.why, "side is open to other users") != NULL, "%s", p.why);
	ck_assert_uint_eq(inode_of(p.hidden), 0);
	place_clear(&p);
}
END_TEST

START_TEST(without_room_nothing_is_left_behind)
{
	struct kvt_segment_file *s = NULL;
	struct place p;

	place_make(&p);
	p.options.bytes = (uint64_t)1 << 50;
	ck_assert_int_eq(kvt_segment_open(&p.options, p.why, &s), KVT_ENOMEM);
	ck_assert_msg(strstr(p.why, "free") != NULL, "%s", p.why);
	ck_assert_uint_eq(inode_of(p.path), 0);
	ck_assert_uint_eq(inode_of(p.hidden), 0);
	p.options.bytes = MIB + 1;
	ck_assert_int_eq(kvt_segment_open(&p.options, p.why, &s), KVT_EINVAL);
	p.options.bytes = MIB;
	p.options.name = "a/b";
	ck_assert_int_eq(kvt_segment_open(&p.options, p.why, &s), KVT_EINVAL);
	p.options.name = p.name;
	p.options.side_path = "/nonexistent/side";
	ck_assert_int_eq(kvt_segment_open(&p.options, p.why, &s), KVT_EIO);
	ck_assert_ptr_null(s);
	place_clear(&p);
}
END_TEST

/* --- promises --------------------------------------------------------------------------------- */

START_TEST(promises_outlive_the_daemon)
{
	struct kvt_segment_file *s;
	struct place p;
	uint64_t left;

	place_make(&p);
	s = opened(&p);
	ck_assert(kvt_segment_promise(s, p.wall_ns + 30 * SECOND));
	kvt_segment_close(s);
	pass(&p, 5 * SECOND);
	s = opened(&p);
	left = quiet_left(&p, s);
	ck_assert_uint_ge(left, 25 * SECOND);
	ck_assert_uint_le(left, 25 * SECOND + LONGEST / 2);
	pass(&p, 20 * SECOND); /* restarted once more before it is over */
	kvt_segment_close(s);
	s = opened(&p);
	ck_assert_uint_ge(quiet_left(&p, s), 5 * SECOND);
	ck_assert_uint_le(quiet_left(&p, s), left - 20 * SECOND);
	pass(&p, LONGEST);
	ck_assert_uint_eq(quiet_left(&p, s), 0);
	kvt_segment_close(s);
	place_clear(&p);
}
END_TEST

START_TEST(a_clean_end_leaves_no_quiet_time_but_for_leases)
{
	struct kvt_segment_file *s;
	struct place p;

	place_make(&p);
	s = opened(&p);
	ck_assert(kvt_segment_promise_for(s, 30 * SECOND));
	kvt_segment_settle(s, 0);
	kvt_segment_close(s);
	s = opened(&p);
	ck_assert_uint_eq(quiet_left(&p, s), 0);
	ck_assert(kvt_segment_promise_for(s, 30 * SECOND));
	kvt_segment_settle(s, 7 * SECOND);
	kvt_segment_close(s);
	s = opened(&p);
	ck_assert_uint_eq(quiet_left(&p, s), 7 * SECOND);
	kvt_segment_settle(s, 0); /* the former one's leases are not over for that */
	kvt_segment_close(s);
	s = opened(&p);
	ck_assert_uint_eq(quiet_left(&p, s), 7 * SECOND);
	kvt_segment_close(s);
	place_clear(&p);
}
END_TEST

START_TEST(clocks_may_jump)
{
	struct kvt_segment_file *s;
	struct place p;

	place_make(&p);
	s = opened(&p);
	ck_assert(kvt_segment_promise_for(s, 30 * SECOND));
	kvt_segment_close(s);
	p.wall_ns += 3600 * SECOND; /* forward: the monotonic one counts */
	s = opened(&p);
	ck_assert_uint_ge(quiet_left(&p, s), 30 * SECOND);
	kvt_segment_close(s);
	p.wall_ns -= 7200 * SECOND; /* back: not longer than was promised */
	s = opened(&p);
	ck_assert_uint_ge(quiet_left(&p, s), 30 * SECOND);
	ck_assert_uint_le(quiet_left(&p, s), 30 * SECOND + LONGEST / 2);
	kvt_segment_close(s);
	p.wall_ns += 3600 * SECOND;
	for (int i = -1; i <= 1; i += 2) { /* a monotonic clock of another name space */
		p.now_ns += i * 500 * SECOND;
		s = opened(&p);
		ck_assert_uint_ge(quiet_left(&p, s), 30 * SECOND);
		ck_assert_uint_le(quiet_left(&p, s), 30 * SECOND + LONGEST / 2);
		kvt_segment_close(s);
	}
	place_clear(&p);
}
END_TEST

START_TEST(an_owner_that_knows_nothing_waits_for_the_longest_lease)
{
	struct kvt_segment_file *s;
	struct place p;

	place_make(&p);
	kvt_segment_close(opened(&p));
	write_file(p.side, "damaged");
	s = opened(&p);
	ck_assert_uint_eq(quiet_left(&p, s), LONGEST);
	kvt_segment_settle(s, 0);
	kvt_segment_close(s);
	ck_assert_int_eq(unlink(p.side), 0);
	s = opened(&p);
	ck_assert_uint_eq(quiet_left(&p, s), LONGEST);
	kvt_segment_close(s);
	place_clear(&p);
}
END_TEST

START_TEST(few_leases_write)
{
	struct kvt_segment_stats before, after;
	struct kvt_segment_file *s;
	struct place p;

	place_make(&p);
	s = opened(&p);
	kvt_segment_stats(s, &before);
	for (int i = 0; i < 10000; i++) { /* 100 seconds of leases */
		ck_assert(kvt_segment_promise(s, p.wall_ns + 30 * SECOND));
		pass(&p, SECOND / 100);
	}
	kvt_segment_stats(s, &after);
	ck_assert_uint_le(after.side_writes - before.side_writes, 12);
	ck_assert_uint_ge(after.side_writes - before.side_writes, 2);
	kvt_segment_close(s);
	place_clear(&p);
}
END_TEST

START_TEST(killed_while_leases_are_out)
{
	struct kvt_segment_file *s;
	struct place p;
	int status, ends[2];
	char byte;
	pid_t child;

	place_make(&p);
	ck_assert_int_eq(pipe(ends), 0);
	child = fork();
	if (child == 0) {
		s = opened(&p);
		if (!kvt_segment_promise_for(s, 30 * SECOND) || write(ends[1], "x", 1) != 1)
			_exit(1);
		pause();
	}
	ck_assert_int_eq(read(ends[0], &byte, 1), 1);
	ck_assert_int_eq(kill(child, SIGKILL), 0);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	s = opened(&p);
	ck_assert_uint_ge(quiet_left(&p, s), 30 * SECOND);
	kvt_segment_close(s);
	close(ends[0]);
	close(ends[1]);
	place_clear(&p);
}
END_TEST

int main(void)
{
	TCase *cases = tcase_create("segment");

	tcase_add_test(cases, a_new_segment_has_two_names_and_no_quiet_time);
	tcase_add_test(cases, it_is_the_same_inode_with_the_same_bytes_after_a_restart);
	tcase_add_test(cases, a_removed_name_comes_back);
	tcase_add_test(cases, another_programs_file_is_left_alone);
	tcase_add_test(cases, what_is_not_ours_is_refused_with_the_command_that_removes_it);
	tcase_add_test(cases, one_owner_at_a_time);
	tcase_add_test(cases, what_another_user_may_touch_is_named_and_not_used);
	tcase_add_test(cases, without_room_nothing_is_left_behind);
	tcase_add_test(cases, promises_outlive_the_daemon);
	tcase_add_test(cases, a_clean_end_leaves_no_quiet_time_but_for_leases);
	tcase_add_test(cases, clocks_may_jump);
	tcase_add_test(cases, an_owner_that_knows_nothing_waits_for_the_longest_lease);
	tcase_add_test(cases, few_leases_write);
	tcase_add_test(cases, killed_while_leases_are_out);
	return run_tcase("cache/daemon/segment", cases);
}
