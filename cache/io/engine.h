/*
 * engine.h - executes operations of the machine's layer: by io_uring or threads.
 *
 * An engine takes lists of operations and gives each back exactly once. It keeps no more than
 * `depth` of them under way; the rest wait in its queue, in order. Functions are called from one
 * thread at a time, wake from any.
 */
#ifndef KVT_ENGINE_H
#define KVT_ENGINE_H

#include "io/queue.h"

/* An open file of the machine's layer; struct kvt_file points to this. */
struct kvt_machine_file {
	int fd;
	uint32_t alignment; /* 1 if not direct */
	bool direct;
	uint64_t changes;   /* number of changes of the file's length by reserve and truncate */
	uint64_t safe;      /* the value of `changes` up to which they are durable */
	/* the value that `safe` gets once one of the running SYNCs has succeeded */
	uint64_t syncing;
	uint32_t syncs;     /* under way */
	struct kvt_machine_file *prev, *next; /* the layer's list */
	char name[];
};

struct kvt_engine;

struct kvt_engine_ops {
	void (*submit)(struct kvt_engine *engine, struct kvt_io_op *list);
	size_t (*reap)(struct kvt_engine *engine, struct kvt_io_op **out, size_t max, int64_t wait_ns);
	void (*wake)(struct kvt_engine *engine);
	void (*destroy)(struct kvt_engine *engine); /* requires that no operation is under way */
};

struct kvt_engine {
	const struct kvt_engine_ops *ops;
};

/* Lists the pieces of an operation without its first `done` bytes; `out` has room for
 * KVT_IO_MAX_PIECES. Pieces that follow each other in memory become one. Returns their number. */
uint32_t kvt_io_rest(const struct kvt_io_op *op, uint64_t done, struct iovec *out);

/* The next step of an operation after a system call. */
enum kvt_io_next {
	KVT_IO_DONE,  /* op->result is set */
	KVT_IO_AGAIN, /* *done has increased, and the rest is to be requested */
};

/* An interrupted call is repeated up to so many times before its error counts. */
#define KVT_IO_RETRIES 16

/* result: number of bytes, or -errno. *done: bytes that earlier calls moved; *retries is 0 at
 * first. */
enum kvt_io_next kvt_io_settle(
	struct kvt_io_op *op, int64_t result, uint64_t *done, uint32_t *retries);

/* Creates an engine whose threads call preadv and pwritev. KVT_ENOMEM; KVT_EIO: *error is errno. */
enum kvt_status kvt_pool_create(uint32_t depth, struct kvt_engine **out, int *error);

#endif
