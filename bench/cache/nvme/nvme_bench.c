/*
 * nvme_bench.c - bytes per second of cache/io, as fio measures a device.
 *
 * Moves a file in chunks with a number of them under way, through the I/O layer that the tier uses,
 * from and to memory that the layer may register. Writing ends with a sync, reading starts with the
 * file's pages out of the page cache. Prints one JSON object; bench/lib_cache_nvme.py runs it and
 * fio in turns. What the process costs (its start, the file's allocation) is not in `seconds`.
 */
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "io/machine.h"
#include "bench/timing.h"

#define FILE_NAME "nvme-bench"

struct bench {
	const char *folder, *mode;
	bool write, fresh, plain; /* plain: do not offer the memory for registering */
	uint64_t bytes, chunk;
	uint32_t depth;
	struct kvt_io *io;
	struct kvt_file *file;
	char *memory;
	struct kvt_io_op *ops; /* one per place in memory */
};

static int fail(const struct bench *b, const char *what)
{
	(void)fprintf(stderr, "nvme_bench: %s: %s\n", what,
		b->io != NULL ? b->io->ops->why(b->io) : strerror(errno));
	return 1;
}

static void ask(struct bench *b, struct kvt_io_op *op, uint64_t offset)
{
	op->offset = offset;
	op->next = NULL;
	b->io->ops->submit(b->io, op);
}

/* Moves the whole file; returns false if an operation failed. */
static bool move(struct bench *b)
{
	uint64_t asked = 0, moved = 0;
	struct kvt_io_op *back[64];

	for (uint32_t i = 0; i < b->depth && asked < b->bytes; i++, asked += b->chunk)
		ask(b, &b->ops[i], asked);
	while (moved < b->bytes) {
		size_t n = b->io->ops->reap(b->io, back, 64, INT64_C(60000000000));

		if (n == 0)
			return false;
		for (size_t i = 0; i < n; i++) {
			if (back[i]->result != (int64_t)b->chunk)
				return false;
			moved += b->chunk;
			if (asked < b->bytes) {
				ask(b, back[i], asked);
				asked += b->chunk;
			}
		}
	}
	return true;
}

static bool sync_file(struct bench *b)
{
	struct kvt_io_op op = {.kind = KVT_IO_SYNC, .file = b->file}, *back;

	b->io->ops->submit(b->io, &op);
	return b->io->ops->reap(b->io, &back, 1, INT64_C(60000000000)) == 1 && op.result == 0;
}

static bool prepare_memory(struct bench *b)
{
	uint64_t bytes = b->depth * b->chunk, x = 88172645463325252u;

	b->ops = calloc(b->depth, sizeof(*b->ops));
	b->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (b->ops == NULL || b->memory == MAP_FAILED)
		return false;
	(void)madvise(b->memory, bytes, MADV_HUGEPAGE);
	for (uint64_t i = 0; i < bytes; i += 8) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		memcpy(b->memory + i, &x, 8);
	}
	return true;
}

static bool prepare_file(struct bench *b)
{
	const struct kvt_io_ops *ops = b->io->ops;

	if (b->write && b->fresh && ops->remove(b->io, FILE_NAME) == KVT_EIO)
		return false;
	if (ops->open(b->io, FILE_NAME, b->write ? KVT_OPEN_CREATE : KVT_OPEN_READ, true, &b->file) !=
		KVT_OK)
		return false;
	if (b->write && ops->reserve(b->io, b->file, b->bytes) != KVT_OK)
		return false;
	for (uint32_t i = 0; i < b->depth; i++) {
		b->ops[i] = (struct kvt_io_op){
			.kind = b->write ? KVT_IO_WRITE : KVT_IO_READ,
			.file = b->file,
			.piece_count = 1,
		};
		b->ops[i].pieces[0] = (struct iovec){b->memory + i * b->chunk, b->chunk};
	}
	return ops->sync_folder(b->io) == KVT_OK;
}

static int run(struct bench *b)
{
	struct kvt_io_options options = {.mode = b->mode, .depth = b->depth, .direct = true};
	struct kvt_io_layer layer = kvt_io_machine();
	const struct kvt_io_mode *mode;
	double start, seconds;
	int64_t cpu_ns;

	if (!prepare_memory(b))
		return fail(b, "memory");
	if (!b->plain) {
		options.arena = b->memory;
		options.arena_bytes = b->depth * b->chunk;
	}
	if (layer.create(layer.self, b->folder, &options, &b->io) != KVT_OK)
		return fail(b, b->folder);
	if (!prepare_file(b))
		return fail(b, "file");
	start = kvb_seconds();
	cpu_ns = kvb_read_ns(CLOCK_PROCESS_CPUTIME_ID);
	if (!move(b) || (b->write && !sync_file(b)))
		return fail(b, "moving data");
	seconds = kvb_seconds() - start;
	cpu_ns = kvb_read_ns(CLOCK_PROCESS_CPUTIME_ID) - cpu_ns;
	mode = b->io->ops->mode(b->io);
	(void)printf("{\"bytes\": %llu, \"seconds\": %.6f, \"bytes_per_second\": %.0f, "
		"\"cpu_seconds\": %.6f, "
		"\"mode\": \"%s\", \"direct\": %s, \"reason\": \"%s\"}\n",
		(unsigned long long)b->bytes, seconds, (double)b->bytes / seconds,
		(double)cpu_ns * 1e-9, mode->name,
		mode->direct ? "true" : "false", mode->reason);
	return 0;
}

static void finish(struct bench *b)
{
	if (b->file != NULL)
		b->io->ops->close(b->io, b->file);
	if (b->io != NULL)
		b->io->ops->destroy(b->io);
	free(b->ops);
}

int main(int argc, char **argv)
{
	struct bench b = {.mode = "auto", .bytes = 1u << 30, .chunk = 4u << 20, .depth = 8};
	int option, status;

	while ((option = getopt(argc, argv, "d:b:c:q:m:wrop")) != -1) {
		switch (option) {
		case 'd':
			b.folder = optarg;
			break;
		case 'b':
			b.bytes = strtoull(optarg, NULL, 10);
			break;
		case 'c':
			b.chunk = strtoull(optarg, NULL, 10);
			break;
		case 'q':
			b.depth = (uint32_t)strtoul(optarg, NULL, 10);
			break;
		case 'm':
			b.mode = optarg;
			break;
		case 'w':
			b.write = b.fresh = true;
			break;
		case 'o':
			b.write = true;
			break;
		case 'r':
			b.write = false;
			break;
		case 'p':
			b.plain = true;
			break;
		default:
			return 2;
		}
	}
	if (b.folder == NULL || b.chunk == 0 || b.bytes < b.chunk || b.depth == 0) {
		(void)fprintf(stderr,
			"usage: nvme_bench -d FOLDER [-w write new files|-o overwrite|-r read] [-b BYTES] "
			"[-c CHUNK] [-q DEPTH] [-m auto|uring|threads] [-p]\n");
		return 2;
	}
	b.bytes -= b.bytes % b.chunk;
	status = run(&b);
	finish(&b);
	return status;
}
