/*
 * modes_test.c - which engine the machine's layer takes, what it says about it, and how each engine
 * behaves where the machine refuses something: no io_uring, no memory to lock, no room, no thread.
 */
#include <check.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "files.h"
#include "io/machine.h"
#include "tests/unit/suite.h"

#define ARENA_BYTES ((size_t)8 << 20)

static struct folder folder;
static unsigned char *arena;

static struct kvt_io *open_mode(const char *mode, bool with_arena)
{
	struct kvt_io_options options = {.mode = mode, .depth = 4, .direct = true};

	if (with_arena) {
		options.arena = arena;
		options.arena_bytes = ARENA_BYTES;
	}
	return layer_open(kvt_io_machine(), folder.path, &options);
}

static void setup(void)
{
	folder_begin(&folder, NULL);
	arena = filled(ARENA_BYTES, 1);
}

static void teardown(void)
{
	free(arena);
	folder_end(&folder);
}

/* Writes part of the arena, reads it into another part, compares. */
static void moves_data(struct kvt_io *io, const char *name)
{
	const size_t bytes = 2 << 20;
	struct kvt_file *file = must_open(io, name, KVT_OPEN_CREATE, true);

	fill(arena, bytes, 11);
	fill(arena + bytes, bytes, 12);
	ck_assert_int_eq(once(io, KVT_IO_WRITE, file, 0, arena, bytes), (int64_t)bytes);
	ck_assert_int_eq(once(io, KVT_IO_SYNC, file, 0, NULL, 0), 0);
	ck_assert_int_eq(once(io, KVT_IO_READ, file, 0, arena + bytes, bytes), (int64_t)bytes);
	ck_assert_mem_eq(arena, arena + bytes, bytes);
	io->ops->close(io, file);
}

/* From now on the system call fails with `error` in this process. */
static void forbid(uint32_t number, int error)
{
	struct sock_filter code[] = {
		BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
		BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (uint32_t)error),
		BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
	};
	struct sock_fprog program = {.len = 4, .filter = code};

	ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
	ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

static const struct {
	uint32_t number;
	int error;
} refusals[] = {
	{__NR_io_uring_setup, EPERM},
	{__NR_io_uring_setup, ENOSYS},
	{__NR_io_uring_enter, EPERM}, /* there is a ring, and it cannot be used */
};

START_TEST(without_io_uring_threads_serve)
{
	struct kvt_io_options options = {.mode = "uring", .depth = 4};
	struct kvt_io_layer layer = kvt_io_machine();
	struct kvt_io *io = NULL;

	forbid(refusals[_i].number, refusals[_i].error);
	ck_assert_int_eq(layer.create(layer.self, folder.path, &options, &io), KVT_ENOTSUP);
	ck_assert_int_eq(errno, refusals[_i].error);
	ck_assert_ptr_null(io);
	io = open_mode("auto", true);
	ck_assert_str_eq(io->ops->mode(io)->name, "threads");
	ck_assert_ptr_nonnull(strstr(io->ops->mode(io)->reason, "io_uring refused"));
	ck_assert_ptr_nonnull(strstr(io->ops->mode(io)->reason, strerror(refusals[_i].error)));
	moves_data(io, "f");
	io->ops->destroy(io);
}
END_TEST

static bool has_uring(void)
{
	struct kvt_io *io = open_mode("auto", false);
	bool has = strcmp(io->ops->mode(io)->name, "threads") != 0;

	io->ops->destroy(io);
	if (!has)
		(void)fprintf(stderr, "no io_uring here: left out\n");
	return has;
}

START_TEST(memory_is_registered_where_it_may_be)
{
	struct kvt_io *io;

	if (!has_uring() || geteuid() != 0)
		return;
	io = open_mode("auto", true);
	ck_assert_str_eq(io->ops->mode(io)->name, "uring");
	moves_data(io, "f");
	io->ops->destroy(io);
	io = open_mode("auto", false);
	ck_assert_str_eq(io->ops->mode(io)->name, "uring-plain");
	moves_data(io, "f");
	io->ops->destroy(io);
}
END_TEST

START_TEST(memory_that_may_not_be_locked_is_used_plainly)
{
	struct rlimit little = {65536, 65536};
	struct kvt_io *io;

	if (!has_uring())
		return;
	ck_assert_int_eq(setrlimit(RLIMIT_MEMLOCK, &little), 0);
	ck_assert_int_eq(chmod(folder.path, 0777), 0);
	if (geteuid() == 0)
		ck_assert_int_eq(setresuid(65534, 65534, 65534), 0);
	io = open_mode("auto", true);
	ck_assert_str_eq(io->ops->mode(io)->name, "uring-plain");
	ck_assert_ptr_nonnull(strstr(io->ops->mode(io)->reason, "RLIMIT_MEMLOCK"));
	moves_data(io, "f");
	io->ops->destroy(io);
}
END_TEST

/* Registering would make it present, which takes seconds per GiB on some machines. */
START_TEST(memory_that_is_not_present_is_left_so)
{
	struct kvt_io_options options = {.mode = "auto", .depth = 4, .direct = true};
	const size_t bytes = 64 << 20;
	unsigned char there[(64 << 20) / 4096];
	struct kvt_io *io;
	void *p;
	size_t present = 0;

	if (!has_uring() || sysconf(_SC_PAGESIZE) != 4096)
		return;
	p = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(p, MAP_FAILED);
	options.arena = p;
	options.arena_bytes = bytes;
	io = layer_open(kvt_io_machine(), folder.path, &options);
	ck_assert_str_eq(io->ops->mode(io)->name, "uring-plain");
	ck_assert_ptr_nonnull(strstr(io->ops->mode(io)->reason, "present"));
	ck_assert_int_eq(mincore(p, bytes, there), 0);
	for (size_t i = 0; i < bytes / 4096; i++)
		present += there[i] & 1;
	ck_assert_uint_eq(present, 0);
	io->ops->destroy(io);
	(void)munmap(p, bytes);
}
END_TEST

START_TEST(memory_outside_the_arena_works_too)
{
	struct kvt_io *io = open_mode("auto", true);
	unsigned char *other = filled(3 * 65536, 4), *got = filled(3 * 65536, 5);
	struct kvt_io_op op = {.kind = KVT_IO_WRITE, .piece_count = 3}, *back;

	op.file = must_open(io, "f", KVT_OPEN_CREATE, true);
	op.pieces[0] = (struct iovec){other, 65536};
	op.pieces[1] = (struct iovec){arena, 4 * 65536};
	op.pieces[2] = (struct iovec){other + 65536, 65536};
	io->ops->submit(io, &op);
	reap_all(io, 1, &back);
	ck_assert_int_eq(op.result, 6 * 65536);
	ck_assert_int_eq(once(io, KVT_IO_READ, op.file, 4 * 65536, got, 2 * 65536), 2 * 65536);
	ck_assert_mem_eq(got, arena + 3 * 65536, 65536);
	ck_assert_mem_eq(got + 65536, other + 65536, 65536);
	io->ops->close(io, op.file);
	io->ops->destroy(io);
	free(other);
	free(got);
}
END_TEST

/* --- threads ------------------------------------------------------------------------------------ */

static const char *const engines[] = {"auto", "threads"};

struct batch {
	struct kvt_io *io;
	struct kvt_io_op ops[8];
};

static void *submit_and_end(void *arg)
{
	struct batch *b = arg;

	b->io->ops->submit(b->io, b->ops);
	return NULL;
}

START_TEST(the_thread_that_submitted_may_end)
{
	struct batch b = {.io = open_mode(engines[_i], true)};
	struct kvt_io_op *back[8];
	struct kvt_file *file = must_open(b.io, "f", KVT_OPEN_CREATE, true);
	pthread_t thread;

	for (int i = 0; i < 8; i++) {
		b.ops[i] = (struct kvt_io_op){.kind = KVT_IO_WRITE, .file = file,
			.offset = (uint64_t)i << 20, .piece_count = 1,
			.next = i < 7 ? &b.ops[i + 1] : NULL};
		b.ops[i].pieces[0] = (struct iovec){arena + ((size_t)i << 20), 1 << 20};
	}
	ck_assert_int_eq(pthread_create(&thread, NULL, submit_and_end, &b), 0);
	pthread_join(thread, NULL);
	reap_all(b.io, 8, back);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(back[i]->result, 1 << 20);
	b.io->ops->close(b.io, file);
	b.io->ops->destroy(b.io);
}
END_TEST

static void *wake_often(void *arg)
{
	struct kvt_io *io = arg;

	for (int i = 0; i < 2000; i++)
		io->ops->wake(io);
	return NULL;
}

START_TEST(wakes_lose_no_operation)
{
	struct kvt_io *io = open_mode(engines[_i], true);
	struct kvt_file *file = must_open(io, "f", KVT_OPEN_CREATE, true);
	struct kvt_io_op *back;
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, wake_often, io), 0);
	for (int i = 0; i < 200; i++) {
		struct kvt_io_op op = {.kind = KVT_IO_WRITE, .file = file, .piece_count = 1};

		op.pieces[0] = (struct iovec){arena, 65536};
		io->ops->submit(io, &op);
		reap_all(io, 1, &back);
		ck_assert_ptr_eq(back, &op);
		ck_assert_int_eq(op.result, 65536);
	}
	pthread_join(thread, NULL);
	io->ops->close(io, file);
	io->ops->destroy(io);
}
END_TEST

/* --- no room ------------------------------------------------------------------------------------ */

/* A file system of 1 MiB over the test's folder; false: may not be had here. */
static bool small_file_system(void)
{
	if (geteuid() != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0)
		return false;
	if (geteuid() == 0 && unshare(CLONE_NEWNS) != 0)
		return false;
	if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
		return false;
	return mount("tmpfs", folder.path, "tmpfs", 0, "size=1m") == 0;
}

START_TEST(a_full_file_system_is_reported)
{
	struct kvt_io_file_info info;
	struct kvt_file *file;
	struct kvt_io *io;
	uint64_t left = 0;

	if (!small_file_system()) {
		(void)fprintf(stderr, "no mounts here: left out\n");
		return;
	}
	io = open_mode(engines[_i], false);
	file = must_open(io, "f", KVT_OPEN_CREATE, true);
	ck_assert_int_eq(io->ops->free_bytes(io, &left), KVT_OK);
	ck_assert_uint_eq(left, 1 << 20);
	ck_assert_int_eq(io->ops->reserve(io, file, 256 << 10), KVT_OK);
	ck_assert_int_eq(io->ops->reserve(io, file, 4 << 20), KVT_FULL);
	ck_assert_ptr_nonnull(strstr(io->ops->why(io), "No space left"));
	ck_assert_int_eq(io->ops->info(io, file, &info), KVT_OK);
	ck_assert_uint_eq(info.bytes, 256 << 10);
	ck_assert_int_eq(io->ops->free_bytes(io, &left), KVT_OK);
	ck_assert_uint_eq(left, 768 << 10);
	ck_assert_int_eq(once(io, KVT_IO_WRITE, file, 0, arena, 256 << 10), 256 << 10);
	ck_assert_int_eq(once(io, KVT_IO_WRITE, file, 2 << 20, arena, 2 << 20), -ENOSPC);
	io->ops->close(io, file);
	io->ops->destroy(io);
	(void)umount2(folder.path, MNT_DETACH);
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("modes");

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_loop_test(tc, without_io_uring_threads_serve, 0, 3);
	tcase_add_test(tc, memory_is_registered_where_it_may_be);
	tcase_add_test(tc, memory_that_may_not_be_locked_is_used_plainly);
	tcase_add_test(tc, memory_that_is_not_present_is_left_so);
	tcase_add_test(tc, memory_outside_the_arena_works_too);
	tcase_add_loop_test(tc, the_thread_that_submitted_may_end, 0, 2);
	tcase_add_loop_test(tc, wakes_lose_no_operation, 0, 2);
	tcase_add_loop_test(tc, a_full_file_system_is_reported, 0, 2);
	return run_tcase("modes", tc);
}
