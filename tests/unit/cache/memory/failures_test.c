/*
 * failures_test.c - each call that can fail does so in turn: no leak, nothing half made, no segment
 * left behind, and what could be done without is reported. The linker sends the calls here first.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "memory/arena.h"
#include "tests/unit/suite.h"

#define MIB ((uint64_t)1 << 20)

/* Calls until the one that fails; negative: none does. Check runs a test in one thread. */
static int countdown = -1;
static bool failed;

static bool fails(void)
{
	if (countdown < 0 || countdown-- > 0)
		return false;
	failed = true;
	return true;
}

static void arm(int calls)
{
	countdown = calls;
	failed = false;
}

static bool disarm(void)
{
	countdown = -1;
	return failed;
}

void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size)
{
	return fails() ? NULL : __real_calloc(n, size);
}

void *__real_mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset);
void *__wrap_mmap64(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
	if (!fails())
		return __real_mmap64(at, bytes, protection, flags, fd, offset);
	errno = ENOMEM;
	return MAP_FAILED;
}

/* As the library calls it: always with the same flag. */
void *__real_mremap(void *at, size_t old_bytes, size_t bytes, int flags, ...);
void *__wrap_mremap(void *at, size_t old_bytes, size_t bytes, int flags, ...);
void *__wrap_mremap(void *at, size_t old_bytes, size_t bytes, int flags, ...)
{
	if (!fails())
		return __real_mremap(at, old_bytes, bytes, flags);
	errno = ENOMEM;
	return MAP_FAILED;
}

int __real_madvise(void *at, size_t bytes, int advice);
int __wrap_madvise(void *at, size_t bytes, int advice);
int __wrap_madvise(void *at, size_t bytes, int advice)
{
	if (!fails())
		return __real_madvise(at, bytes, advice);
	errno = EINVAL;
	return -1;
}

int __real_mlock(const void *at, size_t bytes);
int __wrap_mlock(const void *at, size_t bytes);
int __wrap_mlock(const void *at, size_t bytes)
{
	if (!fails())
		return __real_mlock(at, bytes);
	errno = EPERM;
	return -1;
}

int __real_posix_fallocate64(int fd, off_t offset, off_t bytes);
int __wrap_posix_fallocate64(int fd, off_t offset, off_t bytes);
int __wrap_posix_fallocate64(int fd, off_t offset, off_t bytes)
{
	static int interrupted;

	if (fails())
		return ENOSPC;
	if (interrupted++ % 2 == 0)
		return EINTR;
	return __real_posix_fallocate64(fd, offset, bytes);
}

int __real_ftruncate64(int fd, off_t bytes);
int __wrap_ftruncate64(int fd, off_t bytes);
int __wrap_ftruncate64(int fd, off_t bytes)
{
	if (!fails())
		return __real_ftruncate64(fd, bytes);
	errno = EFBIG;
	return -1;
}

int __real_flock(int fd, int how);
int __wrap_flock(int fd, int how);
int __wrap_flock(int fd, int how)
{
	if (!fails())
		return __real_flock(fd, how);
	errno = EWOULDBLOCK;
	return -1;
}

static void hush(void *self, uint32_t level, const char *line)
{
	(void)self;
	(void)level;
	(void)line;
}

static struct kvt_surroundings surroundings(void)
{
	struct kvt_config config = {.log = hush};
	struct kvt_surroundings s;

	kvt_surroundings_init(&s, &config);
	return s;
}

/* Of this process, in KiB. */
static unsigned long mapped(void)
{
	FILE *file = fopen("/proc/self/statm", "r");
	unsigned long pages = 0;

	ck_assert_ptr_nonnull(file);
	ck_assert_int_eq(fscanf(file, "%lu", &pages), 1);
	fclose(file);
	return pages * (unsigned long)sysconf(_SC_PAGESIZE) / 1024;
}

static int descriptors(void)
{
	int n = 0;

	for (int fd = 0; fd < 256; fd++)
		n += fcntl(fd, F_GETFD) >= 0;
	return n;
}

static void fail_in_turn(const char *backing)
{
	struct kvt_surroundings s = surroundings();
	struct kvt_arena_options options = {
		.bytes = 64 * MIB, .backing = backing, .numa_node = 0, .lock = false};
	int open_before = descriptors(), calls = 0;
	unsigned long before = mapped();
	bool more = true;

	for (; more; calls++) {
		struct kvt_arena *a = NULL;
		enum kvt_status status;

		arm(calls);
		status = kvt_arena_create(&options, &s, &a);
		more = disarm();
		if (status == KVT_OK) {
			memset(kvt_arena_base(a), 1, kvt_arena_capacity(a));
			kvt_arena_destroy(a);
		} else {
			ck_assert(more);
			ck_assert(status == KVT_ENOMEM || status == KVT_EIO);
			ck_assert_ptr_null(a);
		}
		ck_assert_int_eq(descriptors(), open_before);
		if (strncmp(backing, "shm:", 4) == 0)
			ck_assert_int_lt(shm_open(backing + 4, O_RDONLY, 0), 0);
	}
	ck_assert_int_gt(calls, 6);
	/* An arena that stayed would be 64 MiB; sanitizers need some of their own. */
	ck_assert_uint_lt(mapped(), before + 48 * 1024);
}

START_TEST(test_arena)
{
	char backing[80];

	snprintf(backing, sizeof(backing), "shm:kvt-failures-test-%d", (int)getpid());
	fail_in_turn("anon");
	fail_in_turn("hugetlb");
	fail_in_turn(backing);
}
END_TEST

/* What an arena can do without is reported. */
START_TEST(test_lock_refused)
{
	struct kvt_surroundings s = surroundings();
	struct kvt_arena_options options = {
		.bytes = MIB, .backing = "anon", .numa_node = -1, .lock = true};
	struct kvt_arena *a;
	bool told = false;

	for (int calls = 0; calls < 32 && !told; calls++) {
		arm(calls);
		if (kvt_arena_create(&options, &s, &a) != KVT_OK)
			continue;
		(void)disarm();
		told = strstr(kvt_arena_reason(a), "lock: Operation not permitted") != NULL;
		kvt_arena_destroy(a);
	}
	ck_assert(told);
}
END_TEST

START_TEST(test_extents)
{
	const struct kvt_extent run = {10, 50};
	struct kvt_extents *e = NULL;
	bool more = true;

	for (int calls = 0; more; calls++) {
		enum kvt_status status;

		arm(calls);
		status = kvt_extents_create(5000, &e);
		more = disarm();
		ck_assert_int_eq(status, more ? KVT_ENOMEM : KVT_OK);
	}
	ck_assert_int_eq(kvt_extents_mark(e, run), KVT_OK);
	more = true;
	for (int calls = 0; more; calls++) {
		enum kvt_status status;

		arm(calls);
		status = kvt_extents_grow(e, 300000);
		more = disarm();
		ck_assert_int_eq(status, more ? KVT_ENOMEM : KVT_OK);
		ck_assert_uint_eq(kvt_extents_free(e), more ? 4950 : 299950);
		ck_assert_uint_eq(kvt_extents_largest(e), more ? 4940 : 299940);
		ck_assert_int_eq(kvt_extents_mark(e, run), KVT_EXISTS);
	}
	kvt_extents_give(e, &run, 1);
	ck_assert_uint_eq(kvt_extents_largest(e), 300000);
	kvt_extents_destroy(e);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_set_timeout(tcase, 60);
	tcase_add_test(tcase, test_arena);
	tcase_add_test(tcase, test_lock_refused);
	tcase_add_test(tcase, test_extents);
	return run_tcase("failures", tcase);
}
