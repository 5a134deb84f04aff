/*
 * machine_test.c - the machine's own files: what they hold, which users may open them, what they
 * report.
 */
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "files.h"
#include "io/machine.h"
#include "tests/unit/suite.h"

static struct folder folder;
static struct kvt_io *io;
static const char *const modes[] = {"auto", "threads"};

static struct kvt_io *begin(const char *mode, uint32_t depth, const char *base)
{
	struct kvt_io_options options = {.mode = mode, .depth = depth, .direct = true};

	folder_begin(&folder, base);
	io = layer_open(kvt_io_machine(), folder.path, &options);
	return io;
}

static void end(void)
{
	io->ops->destroy(io);
	folder_end(&folder);
}

START_TEST(what_was_written_is_read)
{
	const size_t bytes = 1 << 20;
	unsigned char *wrote = filled(bytes, 1), *got = filled(bytes, 2);
	struct kvt_io_file_info info;
	struct kvt_file *file;

	begin(modes[_i], 4, NULL);
	file = must_open(io, "segment", KVT_OPEN_CREATE, true);
	ck_assert_int_eq(io->ops->reserve(io, file, 4 * bytes), KVT_OK);
	ck_assert_int_eq(io->ops->info(io, file, &info), KVT_OK);
	ck_assert_uint_eq(info.bytes, 4 * bytes);
	ck_assert_uint_le(info.alignment, 65536);
	ck_assert(info.alignment >= 1);
	ck_assert_int_eq(once(io, KVT_IO_WRITE, file, bytes, wrote, bytes), (int64_t)bytes);
	ck_assert_int_eq(once(io, KVT_IO_SYNC, file, 0, NULL, 0), 0);
	ck_assert_int_eq(io->ops->sync_folder(io), KVT_OK);
	ck_assert_int_eq(once(io, KVT_IO_READ, file, bytes, got, bytes), (int64_t)bytes);
	ck_assert_mem_eq(wrote, got, bytes);
	io->ops->close(io, file);
	free(wrote);
	free(got);
	end();
}
END_TEST

START_TEST(pieces_lie_one_after_another)
{
	unsigned char *bytes = filled(6 * 65536, 3), *got = filled(6 * 65536, 4);
	struct kvt_io_op op = {.kind = KVT_IO_WRITE, .piece_count = 3}, *back;

	begin(modes[_i], 2, NULL);
	op.file = must_open(io, "f", KVT_OPEN_CREATE, true);
	op.pieces[0] = (struct iovec){bytes + 4 * 65536, 65536};
	op.pieces[1] = (struct iovec){bytes, 2 * 65536};
	op.pieces[2] = (struct iovec){bytes + 2 * 65536, 65536};
	io->ops->submit(io, &op);
	reap_all(io, 1, &back);
	ck_assert_int_eq(op.result, 4 * 65536);
	ck_assert_int_eq(once(io, KVT_IO_READ, op.file, 0, got, 4 * 65536), 4 * 65536);
	ck_assert_mem_eq(got, bytes + 4 * 65536, 65536);
	ck_assert_mem_eq(got + 65536, bytes, 3 * 65536);
	io->ops->close(io, op.file);
	free(bytes);
	free(got);
	end();
}
END_TEST

START_TEST(a_read_past_the_end_is_short)
{
	unsigned char *bytes = filled(3 * 65536, 5);
	struct kvt_file *file;

	begin(modes[_i], 2, NULL);
	file = must_open(io, "f", KVT_OPEN_CREATE, true);
	ck_assert_int_eq(once(io, KVT_IO_WRITE, file, 0, bytes, 65536), 65536);
	ck_assert_int_eq(once(io, KVT_IO_READ, file, 0, bytes, 3 * 65536), 65536);
	ck_assert_int_eq(once(io, KVT_IO_READ, file, 65536, bytes, 65536), 0);
	ck_assert_int_eq(io->ops->truncate(io, file, 65536 + 100), KVT_OK);
	ck_assert_int_eq(once(io, KVT_IO_READ, file, 0, bytes, 3 * 65536), 65536 + 100);
	io->ops->close(io, file);
	free(bytes);
	end();
}
END_TEST

START_TEST(more_operations_than_depth_all_come_back)
{
	enum { COUNT = 200, BYTES = 4096 };
	unsigned char *bytes = filled(COUNT * BYTES, 6), *got = filled(COUNT * BYTES, 7);
	struct kvt_io_op *ops = calloc(COUNT, sizeof(*ops)), *back[COUNT];
	struct kvt_file *file;

	begin(modes[_i], 3, NULL);
	file = must_open(io, "f", KVT_OPEN_CREATE, true);
	for (int kind = KVT_IO_READ; kind <= KVT_IO_WRITE; kind++) {
		enum kvt_io_kind now = kind == KVT_IO_READ ? KVT_IO_WRITE : KVT_IO_READ;
		unsigned char *from = now == KVT_IO_WRITE ? bytes : got;

		for (int i = 0; i < COUNT; i++) {
			ops[i] = (struct kvt_io_op){.kind = now, .file = file,
				.offset = (uint64_t)i * BYTES, .piece_count = 1,
				.next = i + 1 < COUNT ? &ops[i + 1] : NULL, .user = &ops[i]};
			ops[i].pieces[0] = (struct iovec){from + i * BYTES, BYTES};
		}
		io->ops->submit(io, ops);
		reap_all(io, COUNT, back);
		for (int i = 0; i < COUNT; i++) {
			ck_assert_ptr_eq(back[i]->user, back[i]);
			ck_assert_int_eq(back[i]->result, BYTES);
			back[i]->user = NULL; /* each only once */
		}
	}
	ck_assert_mem_eq(bytes, got, COUNT * BYTES);
	io->ops->close(io, file);
	free(ops);
	free(bytes);
	free(got);
	end();
}
END_TEST

START_TEST(names_are_plain)
{
	const char *const wrong[] = {"", ".", "..", "a/b", "/a", "../a", KVT_IO_LOCK_NAME};
	struct kvt_file *file = NULL;

	begin(modes[_i], 2, NULL);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		ck_assert_int_eq(
			io->ops->open(io, wrong[i], KVT_OPEN_CREATE, false, &file), KVT_EINVAL);
		ck_assert_int_eq(io->ops->remove(io, wrong[i]), KVT_EINVAL);
		ck_assert_int_eq(io->ops->rename(io, wrong[i], "b"), KVT_EINVAL);
		ck_assert_int_eq(io->ops->rename(io, "b", wrong[i]), KVT_EINVAL);
	}
	ck_assert_int_eq(io->ops->open(io, "none", KVT_OPEN_READ, false, &file), KVT_MISS);
	ck_assert_int_eq(io->ops->open(io, "none", KVT_OPEN_WRITE, false, &file), KVT_MISS);
	ck_assert_int_eq(io->ops->remove(io, "none"), KVT_MISS);
	ck_assert_int_eq(io->ops->rename(io, "none", "b"), KVT_MISS);
	ck_assert_ptr_nonnull(strstr(io->ops->why(io), "none"));
	end();
}
END_TEST

static void note_name(void *self, const char *name)
{
	strcat(strcat(self, name), ",");
}

START_TEST(list_has_files_and_nothing_else)
{
	char names[1024] = "", path[512];
	int64_t owner = 0;

	begin(modes[_i], 2, NULL);
	ck_assert_int_eq(io->ops->lock(io, &owner), KVT_OK);
	(void)snprintf(path, sizeof(path), "%s/sub", folder.path);
	ck_assert_int_eq(mkdir(path, 0700), 0);
	io->ops->close(io, must_open(io, "a", KVT_OPEN_CREATE, false));
	ck_assert_int_eq(io->ops->rename(io, "a", "b"), KVT_OK);
	ck_assert_int_eq(io->ops->list(io, note_name, names), KVT_OK);
	ck_assert_str_eq(names, "b,");
	ck_assert_int_eq(io->ops->remove(io, "b"), KVT_OK);
	names[0] = '\0';
	ck_assert_int_eq(io->ops->list(io, note_name, names), KVT_OK);
	ck_assert_str_eq(names, "");
	(void)rmdir(path);
	end();
}
END_TEST

START_TEST(a_symbolic_link_is_not_followed)
{
	char path[512];
	struct kvt_file *file = NULL;

	begin(modes[_i], 2, NULL);
	(void)snprintf(path, sizeof(path), "%s/link", folder.path);
	ck_assert_int_eq(symlink("/etc/passwd", path), 0);
	ck_assert_int_eq(io->ops->open(io, "link", KVT_OPEN_READ, false, &file), KVT_EIO);
	(void)snprintf(path, sizeof(path), "%s/fifo", folder.path);
	ck_assert_int_eq(mkfifo(path, 0600), 0);
	ck_assert_int_eq(io->ops->open(io, "fifo", KVT_OPEN_WRITE, false, &file), KVT_EIO);
	end();
}
END_TEST

START_TEST(a_second_owner_learns_the_first)
{
	struct kvt_io_options options = {.mode = modes[_i], .depth = 2};
	struct kvt_io *other;
	int64_t owner = -1;

	begin(modes[_i], 2, NULL);
	ck_assert_int_eq(io->ops->lock(io, &owner), KVT_OK);
	ck_assert_int_eq(io->ops->lock(io, &owner), KVT_OK);
	other = layer_open(kvt_io_machine(), folder.path, &options);
	ck_assert_int_eq(other->ops->lock(other, &owner), KVT_ELOCKED);
	ck_assert_int_eq(owner, getpid());
	io->ops->destroy(io);
	ck_assert_int_eq(other->ops->lock(other, &owner), KVT_OK);
	io = other;
	end();
}
END_TEST

START_TEST(a_folder_is_made_with_its_parents)
{
	struct kvt_io_options options = {.mode = modes[_i], .depth = 2};
	char path[512];
	struct stat st;

	folder_begin(&folder, NULL);
	(void)snprintf(path, sizeof(path), "%s/x/y//z/", folder.path);
	io = layer_open(kvt_io_machine(), path, &options);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 0777, 0700);
	io->ops->destroy(io);
	(void)snprintf(path, sizeof(path), "rm -r '%s'", folder.path);
	ck_assert_int_eq(system(path), 0);
}
END_TEST

START_TEST(wrong_options_are_refused)
{
	struct kvt_io_options options = {.mode = "fast", .depth = 2};
	struct kvt_io_layer layer = kvt_io_machine();
	struct kvt_io *none = NULL;

	ck_assert_int_eq(layer.create(layer.self, "/tmp", &options, &none), KVT_EINVAL);
	options = (struct kvt_io_options){.mode = "auto", .depth = 0};
	ck_assert_int_eq(layer.create(layer.self, "/tmp", &options, &none), KVT_EINVAL);
	options.depth = 1025;
	ck_assert_int_eq(layer.create(layer.self, "/tmp", &options, &none), KVT_EINVAL);
	options.depth = 1;
	ck_assert_int_eq(layer.create(layer.self, "/dev/null/x", &options, &none), KVT_EIO);
	ck_assert_int_eq(errno, ENOTDIR);
	ck_assert_ptr_null(none);
}
END_TEST

START_TEST(memory_is_not_called_durable)
{
	const struct kvt_io_mode *mode;

	if (access("/dev/shm", W_OK) != 0)
		return;
	begin(modes[_i], 2, "/dev/shm");
	mode = io->ops->mode(io);
	ck_assert(!mode->durable);
	ck_assert(!mode->direct);
	ck_assert_ptr_nonnull(strstr(mode->reason, "not durable"));
	end();
}
END_TEST

START_TEST(a_wake_ends_a_wait)
{
	struct kvt_io_op *back;

	begin(modes[_i], 2, NULL);
	ck_assert_uint_eq(io->ops->reap(io, &back, 1, 0), 0);
	io->ops->wake(io);
	ck_assert_uint_eq(io->ops->reap(io, &back, 1, 0), 0); /* must not use it up */
	ck_assert_uint_eq(io->ops->reap(io, &back, 1, 3600 * SECOND_NS), 0);
	ck_assert_uint_eq(io->ops->reap(io, &back, 1, 1000000), 0); /* ends by its time */
	end();
}
END_TEST

int main(void)
{
	TCase *tc = tcase_create("machine");

	tcase_set_timeout(tc, 120);
	tcase_add_loop_test(tc, what_was_written_is_read, 0, 2);
	tcase_add_loop_test(tc, pieces_lie_one_after_another, 0, 2);
	tcase_add_loop_test(tc, a_read_past_the_end_is_short, 0, 2);
	tcase_add_loop_test(tc, more_operations_than_depth_all_come_back, 0, 2);
	tcase_add_loop_test(tc, names_are_plain, 0, 2);
	tcase_add_loop_test(tc, list_has_files_and_nothing_else, 0, 2);
	tcase_add_loop_test(tc, a_symbolic_link_is_not_followed, 0, 2);
	tcase_add_loop_test(tc, a_second_owner_learns_the_first, 0, 2);
	tcase_add_loop_test(tc, a_folder_is_made_with_its_parents, 0, 2);
	tcase_add_test(tc, wrong_options_are_refused);
	tcase_add_loop_test(tc, memory_is_not_called_durable, 0, 2);
	tcase_add_loop_test(tc, a_wake_ends_a_wait, 0, 2);
	return run_tcase("machine", tc);
}
