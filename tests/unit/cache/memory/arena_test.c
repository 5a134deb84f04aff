/*
 * arena_test.c - the arena's memory by every backing, what is refused and what is logged about it.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "memory/arena.h"
#include "tests/unit/suite.h"

#define MIB ((uint64_t)1 << 20)

/* What was said last. */
struct heard {
	char line[512];
	int lines;
};

static void hear(void *self, uint32_t level, const char *line)
{
	struct heard *heard = self;

	(void)level;
	snprintf(heard->line, sizeof(heard->line), "%s", line);
	heard->lines++;
}

static struct kvt_surroundings surroundings(struct heard *heard)
{
	struct kvt_config config = {.log = hear, .log_self = heard};
	struct kvt_surroundings s;

	memset(heard, 0, sizeof(*heard));
	kvt_surroundings_init(&s, &config);
	return s;
}

static enum kvt_status create(const char *backing, uint64_t bytes, struct kvt_arena **out)
{
	static struct heard heard;
	struct kvt_surroundings s = surroundings(&heard);
	struct kvt_arena_options options = {.bytes = bytes, .backing = backing, .numa_node = -1};

	return kvt_arena_create(&options, &s, out);
}

static void segment_name(char name[64], const char *suffix)
{
	snprintf(name, 64, "kvt-arena-test-%d-%s", (int)getpid(), suffix);
}

/* Does the mapping at `base` have this flag? */
static void check_smaps(const void *base, const char *flag, bool there)
{
	FILE *file = fopen("/proc/self/smaps", "r");
	char line[512], begin[32];
	bool ours = false, found = false;

	ck_assert_ptr_nonnull(file);
	snprintf(begin, sizeof(begin), "%lx-", (unsigned long)base);
	while (fgets(line, sizeof(line), file) != NULL) {
		if (strncmp(line, begin, strlen(begin)) == 0)
			ours = true;
		else if (ours && strncmp(line, "VmFlags:", 8) == 0) {
			found = strstr(line, flag) != NULL;
			break;
		}
	}
	fclose(file);
	ck_assert(ours);
	ck_assert_int_eq(found, there);
}

static void check_memory(struct kvt_arena *a)
{
	uint64_t bytes = kvt_arena_capacity(a);
	char *base = kvt_arena_base(a);

	ck_assert_uint_eq((uintptr_t)base % KVT_ARENA_UNIT, 0);
	ck_assert_uint_eq(bytes % KVT_ARENA_UNIT, 0);
	memset(base, 0x5a, bytes);
	ck_assert_int_eq(base[0], 0x5a);
	ck_assert_int_eq(base[bytes - 1], 0x5a);
}

START_TEST(test_anon)
{
	struct kvt_arena *a;

	ck_assert_int_eq(create("anon", 8 * MIB + 100, &a), KVT_OK);
	ck_assert_uint_eq(kvt_arena_capacity(a), 8 * MIB);
	ck_assert_uint_eq(kvt_arena_used(a), 0);
	ck_assert_uint_gt(kvt_arena_bookkeeping(a), 0);
	ck_assert(strcmp(kvt_arena_mode(a), "anon") == 0 ||
		  strcmp(kvt_arena_mode(a), "anon-thp") == 0);
	if (strcmp(kvt_arena_mode(a), "anon") == 0)
		ck_assert_ptr_nonnull(strstr(kvt_arena_reason(a), "huge pages"));
	else
		ck_assert_str_eq(kvt_arena_reason(a), "");
	check_memory(a);
	check_smaps(kvt_arena_base(a), " dd", true); /* not in core files */
	check_smaps(kvt_arena_base(a), " dc", true); /* not in forked children */
	kvt_arena_destroy(a);
	kvt_arena_destroy(NULL);
}
END_TEST

/* Memory is taken as it is touched; a lock touches all of it. */
START_TEST(test_what_is_in_memory)
{
	struct kvt_arena *a;

	ck_assert_int_eq(create("anon", 64 * MIB, &a), KVT_OK);
	ck_assert_uint_eq(kvt_arena_resident(a), 0);
	memset(kvt_arena_base(a), 1, 32 * MIB);
	ck_assert_uint_ge(kvt_arena_resident(a), 31 * MIB);
	ck_assert_uint_le(kvt_arena_resident(a), 35 * MIB);
	memset(kvt_arena_base(a), 1, 64 * MIB);
	ck_assert_uint_eq(kvt_arena_resident(a), 64 * MIB);
	kvt_arena_destroy(a);
}
END_TEST

START_TEST(test_wrong_options)
{
	struct kvt_arena *a = NULL;

	ck_assert_int_eq(create("anon", 0, &a), KVT_EINVAL);
	ck_assert_int_eq(create("anon", KVT_ARENA_UNIT - 1, &a), KVT_EINVAL);
	ck_assert_int_eq(create("anon", UINT64_MAX, &a), KVT_EINVAL);
	ck_assert_int_eq(create("tape", MIB, &a), KVT_EINVAL);
	ck_assert_int_eq(create("shm:", MIB, &a), KVT_EINVAL);
	ck_assert_int_eq(create("shm:a/b", MIB, &a), KVT_EINVAL);
	ck_assert_int_eq(create("shm:..", MIB, &a), KVT_EINVAL);
	ck_assert_int_eq(create("anon", (uint64_t)1 << 46, &a), KVT_ENOMEM);
	ck_assert_ptr_null(a);
}
END_TEST

/* With or without huge pages in the machine: memory either way, and the mode says which. */
START_TEST(test_hugetlb)
{
	struct kvt_arena *a;

	ck_assert_int_eq(create("hugetlb", 4 * MIB, &a), KVT_OK);
	if (strcmp(kvt_arena_mode(a), "hugetlb") != 0) {
		ck_assert_ptr_nonnull(strstr(kvt_arena_reason(a), "hugetlb"));
		ck_assert_ptr_nonnull(strstr(kvt_arena_mode(a), "anon"));
		ck_assert_uint_eq(kvt_arena_capacity(a), 4 * MIB);
	}
	check_memory(a);
	kvt_arena_destroy(a);
	/* Less than a page of any machine. */
	ck_assert_int_eq(create("hugetlb", KVT_ARENA_UNIT, &a), KVT_OK);
	ck_assert_ptr_nonnull(strstr(kvt_arena_mode(a), "anon"));
	ck_assert_ptr_nonnull(strstr(kvt_arena_reason(a), "hugetlb"));
	check_memory(a);
	kvt_arena_destroy(a);
}
END_TEST

START_TEST(test_refusals_are_reported)
{
	struct heard heard;
	struct kvt_surroundings s = surroundings(&heard);
	struct kvt_arena_options options = {.bytes = MIB, .backing = "anon", .numa_node = 1023};
	struct kvt_arena *a;

	ck_assert_int_eq(kvt_arena_create(&options, &s, &a), KVT_OK);
	ck_assert_ptr_nonnull(strstr(kvt_arena_reason(a), "NUMA node 1023"));
	ck_assert_ptr_nonnull(strstr(heard.line, "NUMA node 1023"));
	check_memory(a);
	kvt_arena_destroy(a);
	options.numa_node = 5000;
	ck_assert_int_eq(kvt_arena_create(&options, &s, &a), KVT_OK);
	ck_assert_ptr_nonnull(strstr(kvt_arena_reason(a), "NUMA node 5000"));
	kvt_arena_destroy(a);
}
END_TEST

static uint64_t locked_kib(void)
{
	FILE *file = fopen("/proc/self/status", "r");
	unsigned long kib = 0;
	char line[256];

	ck_assert_ptr_nonnull(file);
	while (fgets(line, sizeof(line), file) != NULL) {
		if (sscanf(line, "VmLck: %lu", &kib) == 1)
			break;
	}
	fclose(file);
	return kib;
}

/* False: mlock does nothing and says that it worked, as sanitizers make it. */
static bool lock_is_real(void)
{
	static char page[1 << 16];
	uint64_t before = locked_kib();
	bool real = mlock(page, sizeof(page)) != 0 || locked_kib() > before;

	munlock(page, sizeof(page));
	return real;
}

/* Locked, or said why not. */
START_TEST(test_lock)
{
	struct heard heard;
	struct kvt_surroundings s = surroundings(&heard);
	struct kvt_arena_options options = {
		.bytes = 16 * MIB, .backing = "anon", .numa_node = 0, .lock = true};
	uint64_t before = locked_kib();
	struct kvt_arena *a;

	ck_assert_int_eq(kvt_arena_create(&options, &s, &a), KVT_OK);
	if (lock_is_real() && locked_kib() - before < 16 * 1024)
		ck_assert_ptr_nonnull(strstr(kvt_arena_reason(a), "lock"));
	else
		ck_assert_ptr_null(strstr(kvt_arena_reason(a), "lock"));
	check_memory(a);
	kvt_arena_destroy(a);
}
END_TEST

START_TEST(test_shm)
{
	char name[64], backing[80];
	struct kvt_arena *a;
	struct stat st;
	char *other;
	int fd;

	segment_name(name, "shared");
	snprintf(backing, sizeof(backing), "shm:%s", name);
	ck_assert_int_eq(create(backing, 2 * MIB, &a), KVT_OK);
	ck_assert_str_eq(kvt_arena_mode(a), "shm");
	check_memory(a);
	fd = shm_open(name, O_RDWR, 0);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fstat(fd, &st), 0);
	ck_assert_int_eq(st.st_size, 2 * MIB);
	ck_assert_int_ge(st.st_blocks * 512, 2 * MIB); /* its room is its own */
	ck_assert_int_eq(st.st_mode & 0777, 0600);
	other = mmap(NULL, 2 * MIB, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert_ptr_ne(other, MAP_FAILED);
	((char *)kvt_arena_base(a))[12345] = 7;
	ck_assert_int_eq(other[12345], 7);
	munmap(other, 2 * MIB);
	close(fd);
	kvt_arena_destroy(a);
	ck_assert_int_lt(shm_open(name, O_RDWR, 0), 0);
	ck_assert_int_eq(errno, ENOENT);
}
END_TEST

START_TEST(test_shm_owners)
{
	char name[64], backing[80], byte;
	struct kvt_arena *a, *second;
	int fd, status, pipes[2];
	pid_t child;

	segment_name(name, "owners");
	snprintf(backing, sizeof(backing), "shm:%s", name);
	ck_assert_int_eq(pipe(pipes), 0);
	child = fork();
	if (child == 0) {
		if (create(backing, MIB, &a) != KVT_OK)
			_exit(1);
		memset(kvt_arena_base(a), 0x77, MIB);
		byte = 1;
		if (write(pipes[1], &byte, 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	ck_assert_int_eq(read(pipes[0], &byte, 1), 1);
	second = NULL;
	ck_assert_int_eq(create(backing, MIB, &second), KVT_ELOCKED);
	ck_assert_ptr_null(second);
	fd = shm_open(name, O_RDONLY, 0);
	ck_assert_int_ge(fd, 0); /* untouched */
	close(fd);
	kill(child, SIGKILL);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	/* Its owner is dead: ours, and nothing of the old bytes is in it. */
	ck_assert_int_eq(create(backing, MIB, &second), KVT_OK);
	for (uint64_t i = 0; i < MIB; i += 4096)
		ck_assert_int_eq(((char *)kvt_arena_base(second))[i], 0);
	kvt_arena_destroy(second);
	ck_assert_int_lt(shm_open(name, O_RDWR, 0), 0);
}
END_TEST

/* A name that another process made meanwhile is not removed. */
START_TEST(test_shm_replaced)
{
	char name[64], backing[80];
	struct kvt_arena *a;
	int fd;

	segment_name(name, "replaced");
	snprintf(backing, sizeof(backing), "shm:%s", name);
	ck_assert_int_eq(create(backing, MIB, &a), KVT_OK);
	ck_assert_int_eq(shm_unlink(name), 0);
	fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
	ck_assert_int_ge(fd, 0);
	kvt_arena_destroy(a);
	ck_assert_int_eq(shm_unlink(name), 0);
	close(fd);
}
END_TEST

START_TEST(test_shm_larger_than_it_can_be)
{
	char name[64], backing[80];
	struct kvt_arena *a = NULL;
	struct statvfs fs;

	if (statvfs("/dev/shm", &fs) != 0 || fs.f_blocks == 0)
		return;
	segment_name(name, "large");
	snprintf(backing, sizeof(backing), "shm:%s", name);
	ck_assert_int_eq(
		create(backing, (uint64_t)fs.f_blocks * fs.f_frsize + 64 * MIB, &a), KVT_ENOMEM);
	ck_assert_ptr_null(a);
	ck_assert_int_lt(shm_open(name, O_RDWR, 0), 0);
}
END_TEST

/* A /dev/shm of 4 MiB of its own, where that may be had. */
START_TEST(test_shm_full)
{
	struct kvt_arena *a = NULL;
	char name[64], backing[80];

	if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
		return;
	(void)mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL);
	if (mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=4m") != 0)
		return;
	segment_name(name, "full");
	snprintf(backing, sizeof(backing), "shm:%s", name);
	ck_assert_int_eq(create(backing, 8 * MIB, &a), KVT_ENOMEM);
	ck_assert_int_lt(shm_open(name, O_RDWR, 0), 0);
	ck_assert_int_eq(create(backing, 3 * MIB, &a), KVT_OK);
	check_memory(a);
	kvt_arena_destroy(a);
}
END_TEST

/* A child that destroys what it inherited leaves the parent's arena as it is. */
static void child_destroys(const char *backing)
{
	struct kvt_arena *a;
	int status;
	pid_t child;

	ck_assert_int_eq(create(backing, MIB, &a), KVT_OK);
	check_memory(a);
	child = fork();
	if (child == 0) {
		kvt_arena_destroy(a);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	check_memory(a);
	if (strncmp(backing, "shm:", 4) == 0) {
		int fd = shm_open(backing + 4, O_RDONLY, 0);

		ck_assert_int_ge(fd, 0);
		close(fd);
	}
	kvt_arena_destroy(a);
}

START_TEST(test_fork)
{
	char name[64], backing[80];

	segment_name(name, "fork");
	snprintf(backing, sizeof(backing), "shm:%s", name);
	child_destroys("anon");
	child_destroys(backing);
}
END_TEST

START_TEST(test_take_and_give)
{
	struct kvt_extent runs[KVT_MAX_EXTENTS], more[KVT_MAX_EXTENTS];
	struct kvt_segment segments[KVT_MAX_EXTENTS];
	uint32_t n = KVT_MAX_EXTENTS, m = KVT_MAX_EXTENTS;
	struct kvt_arena *a;

	ck_assert_int_eq(create("anon", 16 * KVT_ARENA_UNIT, &a), KVT_OK);
	ck_assert_int_eq(kvt_arena_take(a, 0, 0, runs, &n), KVT_EINVAL);
	ck_assert_int_eq(kvt_arena_take(a, UINT64_MAX, 0, runs, &n), KVT_FULL);
	ck_assert_int_eq(kvt_arena_take(a, 10 * KVT_ARENA_UNIT, 7, runs, &n), KVT_FULL);
	ck_assert_int_eq(kvt_arena_take(a, 10 * KVT_ARENA_UNIT, UINT64_MAX, runs, &n), KVT_FULL);
	ck_assert_int_eq(kvt_arena_take(a, 9 * KVT_ARENA_UNIT + 1, 6, runs, &n), KVT_OK);
	ck_assert_uint_eq(kvt_arena_used(a), 10 * KVT_ARENA_UNIT);
	ck_assert_uint_eq(n, 1);
	kvt_arena_segments(a, runs, n, 9 * KVT_ARENA_UNIT + 1, segments);
	ck_assert_uint_eq(segments[0].bytes, 9 * KVT_ARENA_UNIT + 1);
	ck_assert_ptr_eq(segments[0].base, (char *)kvt_arena_base(a) + segments[0].arena_offset);
	ck_assert_int_eq(kvt_arena_take(a, 6 * KVT_ARENA_UNIT, 0, more, &m), KVT_OK);
	m = KVT_MAX_EXTENTS;
	ck_assert_int_eq(kvt_arena_take(a, 1, 0, more, &m), KVT_FULL);
	kvt_arena_give(a, runs, n);
	ck_assert_uint_eq(kvt_arena_used(a), 6 * KVT_ARENA_UNIT);
	kvt_arena_destroy(a);
}
END_TEST

START_TEST(test_segments_of_several_runs)
{
	const struct kvt_extent runs[] = {{3, 2}, {0, 1}, {9, 4}};
	struct kvt_segment segments[3];
	uint64_t bytes = 5 * KVT_ARENA_UNIT + 17;
	struct kvt_arena *a;

	ck_assert_int_eq(create("anon", 16 * KVT_ARENA_UNIT, &a), KVT_OK);
	kvt_arena_segments(a, runs, 3, bytes, segments);
	ck_assert_uint_eq(segments[0].bytes, 2 * KVT_ARENA_UNIT);
	ck_assert_uint_eq(segments[0].arena_offset, 3 * KVT_ARENA_UNIT);
	ck_assert_uint_eq(segments[1].bytes, KVT_ARENA_UNIT);
	ck_assert_uint_eq(segments[2].bytes, 2 * KVT_ARENA_UNIT + 17);
	ck_assert_ptr_eq(segments[2].base, (char *)kvt_arena_base(a) + 9 * KVT_ARENA_UNIT);
	kvt_arena_destroy(a);
}
END_TEST

/* One of several threads that take, write their name into what they got, look again, and give. */
struct user {
	struct kvt_arena *arena;
	uint64_t random;
	uint8_t mark;
};

static void *use(void *self)
{
	struct user *user = self;

	for (int i = 0; i < 3000; i++) {
		struct kvt_extent runs[KVT_MAX_EXTENTS];
		struct kvt_segment segments[KVT_MAX_EXTENTS];
		uint32_t n = KVT_MAX_EXTENTS;
		uint64_t bytes;

		user->random = user->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
		bytes = 1 + (user->random >> 40) % (5 * KVT_ARENA_UNIT);
		if (kvt_arena_take(user->arena, bytes, 2, runs, &n) != KVT_OK)
			continue;
		kvt_arena_segments(user->arena, runs, n, bytes, segments);
		for (uint32_t k = 0; k < n; k++) {
			((uint8_t *)segments[k].base)[0] = user->mark;
			((uint8_t *)segments[k].base)[segments[k].bytes - 1] = user->mark;
		}
		sched_yield();
		for (uint32_t k = 0; k < n; k++) {
			if (((uint8_t *)segments[k].base)[0] != user->mark ||
				((uint8_t *)segments[k].base)[segments[k].bytes - 1] != user->mark)
				return user; /* another user's */
		}
		kvt_arena_give(user->arena, runs, n);
	}
	return NULL;
}

START_TEST(test_threads)
{
	pthread_t threads[4];
	struct user users[4];
	struct kvt_arena *a;

	ck_assert_int_eq(create("anon", 12 * KVT_ARENA_UNIT, &a), KVT_OK);
	for (int i = 0; i < 4; i++) {
		users[i] = (struct user){a, (uint64_t)i * 77 + 1, (uint8_t)(i + 1)};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, use, &users[i]), 0);
	}
	for (int i = 0; i < 4; i++) {
		void *wrong;

		pthread_join(threads[i], &wrong);
		ck_assert_ptr_null(wrong);
	}
	ck_assert_uint_eq(kvt_arena_used(a), 0);
	kvt_arena_destroy(a);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, test_anon);
	tcase_add_test(tcase, test_wrong_options);
	tcase_add_test(tcase, test_hugetlb);
	tcase_add_test(tcase, test_refusals_are_reported);
	tcase_add_test(tcase, test_lock);
	tcase_add_test(tcase, test_shm);
	tcase_add_test(tcase, test_shm_owners);
	tcase_add_test(tcase, test_shm_replaced);
	tcase_add_test(tcase, test_shm_larger_than_it_can_be);
	tcase_add_test(tcase, test_shm_full);
	tcase_add_test(tcase, test_fork);
	tcase_add_test(tcase, test_what_is_in_memory);
	tcase_add_test(tcase, test_take_and_give);
	tcase_add_test(tcase, test_segments_of_several_runs);
	tcase_add_test(tcase, test_threads);
	return run_tcase("arena", tcase);
}
