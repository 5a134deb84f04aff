/*
 * arena_fd_test.c - an arena in a file of the caller's: what is in it stays, it is neither cut nor
 * removed nor closed, and what cannot be such a file is refused.
 */
#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "memory/arena.h"
#include "tests/unit/suite.h"

#define MIB ((uint64_t)1 << 20)

static void ignore(void *self, uint32_t level, const char *line)
{
	(void)self;
	(void)level;
	(void)line;
}

static enum kvt_status create(const char *backing, uint64_t bytes, struct kvt_arena **out)
{
	struct kvt_config config = {.log = ignore};
	struct kvt_surroundings s;
	struct kvt_arena_options options = {.bytes = bytes, .backing = backing, .numa_node = -1};

	kvt_surroundings_init(&s, &config);
	return kvt_arena_create(&options, &s, out);
}

static int make_file(uint64_t bytes)
{
	int fd = memfd_create("arena-fd-test", MFD_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(ftruncate(fd, (off_t)bytes), 0);
	return fd;
}

START_TEST(what_is_in_the_file_stays)
{
	int fd = make_file(4 * MIB);
	char backing[32], byte = 'x';
	struct kvt_arena *arena;
	struct stat after;

	ck_assert_int_eq(pwrite(fd, &byte, 1, (off_t)(3 * MIB)), 1);
	snprintf(backing, sizeof(backing), "fd:%d", fd);
	ck_assert_int_eq(create(backing, 4 * MIB, &arena), KVT_OK);
	ck_assert_str_eq(kvt_arena_mode(arena), "fd");
	ck_assert_uint_eq(kvt_arena_capacity(arena), 4 * MIB);
	ck_assert_int_eq(((char *)kvt_arena_base(arena))[3 * MIB], 'x');
	((char *)kvt_arena_base(arena))[MIB] = 'y';
	kvt_arena_destroy(arena);
	ck_assert_int_eq(fstat(fd, &after), 0); /* still open */
	ck_assert_int_eq(after.st_size, (off_t)(4 * MIB));
	ck_assert_int_eq(pread(fd, &byte, 1, (off_t)MIB), 1);
	ck_assert_int_eq(byte, 'y'); /* it was the file itself */
	close(fd);
}
END_TEST

START_TEST(offsets_are_those_of_the_file)
{
	int fd = make_file(2 * MIB);
	struct kvt_extent runs[KVT_MAX_EXTENTS];
	struct kvt_segment segments[KVT_MAX_EXTENTS];
	uint32_t n = KVT_MAX_EXTENTS;
	struct kvt_arena *arena;
	char backing[32], text[4] = "";

	snprintf(backing, sizeof(backing), "fd:%d", fd);
	ck_assert_int_eq(create(backing, 2 * MIB, &arena), KVT_OK);
	ck_assert_int_eq(kvt_arena_take(arena, 3, 0, runs, &n), KVT_OK);
	kvt_arena_segments(arena, runs, n, 3, segments);
	memcpy(segments[0].base, "abc", 3);
	ck_assert_int_eq(pread(fd, text, 3, (off_t)segments[0].arena_offset), 3);
	ck_assert_str_eq(text, "abc");
	kvt_arena_give(arena, runs, n);
	kvt_arena_destroy(arena);
	close(fd);
}
END_TEST

START_TEST(what_is_no_such_file_is_refused)
{
	static const char *const names[] = {"fd:", "fd:x", "fd:-1", "fd:+1", "fd: 1", "fd:1x",
		"fd:99999999999999999999", "fd:1000000"};
	struct kvt_arena *arena = NULL;
	char backing[32];
	int fd, ends[2];

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		ck_assert_int_eq(create(names[i], MIB, &arena), KVT_EINVAL);
	ck_assert_int_eq(pipe(ends), 0);
	snprintf(backing, sizeof(backing), "fd:%d", ends[0]);
	ck_assert_int_eq(create(backing, MIB, &arena), KVT_EINVAL);
	close(ends[0]);
	close(ends[1]);
	fd = make_file(MIB - 1); /* too small: its last page would end the process */
	snprintf(backing, sizeof(backing), "fd:%d", fd);
	ck_assert_int_eq(create(backing, MIB, &arena), KVT_EINVAL);
	close(fd);
	fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC); /* not to be written */
	snprintf(backing, sizeof(backing), "fd:%d", fd);
	ck_assert_int_eq(create(backing, KVT_ARENA_UNIT, &arena), KVT_EINVAL);
	close(fd);
	ck_assert_ptr_null(arena);
}
END_TEST

int main(void)
{
	TCase *cases = tcase_create("fd");

	tcase_add_test(cases, what_is_in_the_file_stays);
	tcase_add_test(cases, offsets_are_those_of_the_file);
	tcase_add_test(cases, what_is_no_such_file_is_refused);
	return run_tcase("cache/memory/arena_fd", cases);
}
