/*
 * files.c - what tests of I/O layers share.
 */
#include <check.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "files.h"

void folder_begin(struct folder *f, const char *base)
{
	const char *tmp = base != NULL ? base : getenv("TMPDIR");

	(void)snprintf(
		f->path, sizeof(f->path), "%s/kvt-io-XXXXXX", tmp != NULL ? tmp : "/tmp");
	ck_assert_ptr_nonnull(mkdtemp(f->path));
}

void folder_end(struct folder *f)
{
	DIR *dir = opendir(f->path);
	struct dirent *entry;

	while (dir != NULL && (entry = readdir(dir)) != NULL)
		(void)unlinkat(dirfd(dir), entry->d_name, 0);
	if (dir != NULL)
		(void)closedir(dir);
	(void)rmdir(f->path);
}

void fill(unsigned char *to, size_t bytes, uint32_t seed)
{
	uint64_t x = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;

	for (size_t i = 0; i < bytes; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		to[i] = (unsigned char)x;
	}
}

unsigned char *filled(size_t bytes, uint32_t seed)
{
	void *p = NULL;

	ck_assert_int_eq(posix_memalign(&p, 65536, bytes), 0);
	fill(p, bytes, seed);
	return p;
}

struct kvt_io *layer_open(
	struct kvt_io_layer layer, const char *folder, const struct kvt_io_options *options)
{
	struct kvt_io *io = NULL;

	ck_assert_int_eq(layer.create(layer.self, folder, options, &io), KVT_OK);
	ck_assert_ptr_nonnull(io);
	return io;
}

struct kvt_file *must_open(struct kvt_io *io, const char *name, enum kvt_open_how how, bool direct)
{
	struct kvt_file *file = NULL;

	ck_assert_int_eq(io->ops->open(io, name, how, direct, &file), KVT_OK);
	return file;
}

void reap_all(struct kvt_io *io, size_t count, struct kvt_io_op **out)
{
	size_t got = 0;

	for (int rounds = 0; got < count; rounds++) {
		ck_assert_int_lt(rounds, 100000);
		got += io->ops->reap(io, out + got, count - got, SECOND_NS);
	}
}

int64_t once(struct kvt_io *io, enum kvt_io_kind kind, struct kvt_file *file, uint64_t offset,
	void *bytes, size_t len)
{
	struct kvt_io_op op = {.kind = kind, .file = file, .offset = offset}, *back = NULL;

	if (kind != KVT_IO_SYNC) {
		op.pieces[0] = (struct iovec){.iov_base = bytes, .iov_len = len};
		op.piece_count = 1;
	}
	io->ops->submit(io, &op);
	reap_all(io, 1, &back);
	ck_assert_ptr_eq(back, &op);
	return op.result;
}
