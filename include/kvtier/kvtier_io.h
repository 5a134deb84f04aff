/*
 * kvtier_io.h - files as kvtier uses them, behind a table of functions.
 *
 * The library never calls open(2) or write(2) on a store itself: it asks an I/O layer. The
 * machine's own layer uses O_DIRECT with io_uring or threads. A caller may pass another layer.
 * Tests of faults, power loss and simulated time do: their layer keeps files in memory, drops
 * writes without sync, or answers late.
 *
 * A layer creates one `struct kvt_io` per store. Names are relative to the store's folder and have
 * no '/'. Synchronous functions are called while a store opens, and for files of metadata; data
 * moves by operations. All functions of one kvt_io but `wake` are called from one thread at a time.
 * Statuses are KVT_OK, KVT_EIO (text of the cause through `why`), KVT_ENOMEM, or as a function's
 * comment says.
 */
#ifndef KVTIER_IO_H
#define KVTIER_IO_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "kvtier/kvtier.h"

#ifdef __cplusplus
extern "C" {
#endif

struct kvt_io;   /* a layer at work on one folder; the layer's own struct begins with its ops */
struct kvt_file; /* an open file of it */

enum kvt_io_kind { KVT_IO_READ, KVT_IO_WRITE, KVT_IO_SYNC };

#define KVT_IO_MAX_PIECES 64

/*
 * One operation. It and its buffers must stay valid from submit until reap returns it. For direct
 * files, offset and every piece's base and length are multiples of `alignment`. A SYNC covers all
 * writes of the file that were reaped before it was submitted.
 */
struct kvt_io_op {
	enum kvt_io_kind kind;
	struct kvt_file *file;
	uint64_t offset;
	struct iovec pieces[KVT_IO_MAX_PIECES];
	uint32_t piece_count;
	int64_t result; /* set before reap: bytes moved (may be short), or -errno */
	void *user;
	struct kvt_io_op *next; /* for lists of its present owner */
};

struct kvt_io_file_info {
	uint64_t bytes;     /* length */
	uint32_t alignment; /* alignment of operations; 1 without O_DIRECT */
	bool direct;
};

/* The mode that the layer chose. */
struct kvt_io_mode {
	char name[32];                 /* "uring", "uring-plain", "threads", "memory", ... */
	char reason[KVT_REASON_BYTES]; /* why not a better mode; "" if it is the best */
	bool durable;                  /* false: a sync reaches no device (tmpfs) */
	bool direct;
};

struct kvt_io_options {
	const char *mode; /* "auto", "uring", "threads"; other layers may ignore it */
	uint32_t depth;   /* operations that may be under way at once, 1 to 1024 */
	bool direct;
	/* Memory that most operations use, for the layer to register; may be NULL. */
	void *arena;
	uint64_t arena_bytes;
};

enum kvt_open_how { KVT_OPEN_READ, KVT_OPEN_WRITE, KVT_OPEN_CREATE /* write, made if missing */ };

struct kvt_io_ops {
	/* --- folder; sync metadata operations are durable once sync_folder returned KVT_OK --- */
	enum kvt_status (*open)(struct kvt_io *io, const char *name, enum kvt_open_how how,
		bool direct, struct kvt_file **file); /* KVT_MISS: no such file */
	void (*close)(struct kvt_io *io, struct kvt_file *file);
	enum kvt_status (*info)(
		struct kvt_io *io, struct kvt_file *file, struct kvt_io_file_info *out);
	/* Sets the length to `bytes` and allocates the blocks. KVT_FULL: no space left. */
	enum kvt_status (*reserve)(struct kvt_io *io, struct kvt_file *file, uint64_t bytes);
	enum kvt_status (*truncate)(struct kvt_io *io, struct kvt_file *file, uint64_t bytes);
	/* KVT_MISS: no such file. */
	enum kvt_status (*remove)(struct kvt_io *io, const char *name);
	enum kvt_status (*rename)(struct kvt_io *io, const char *from, const char *to);
	enum kvt_status (*sync_folder)(struct kvt_io *io);
	/* Calls each() with every name. */
	enum kvt_status (*list)(
		struct kvt_io *io, void (*each)(void *self, const char *name), void *self);
	/* Free bytes that this user may still write. */
	enum kvt_status (*free_bytes)(struct kvt_io *io, uint64_t *out);
	/* Locks the folder for one owner. KVT_ELOCKED: *owner is the owner's pid (0: unknown). The
	 * lock ends with destroy. */
	enum kvt_status (*lock)(struct kvt_io *io, int64_t *owner);

	/* --- data --- */
	/* Takes a list (by next) of operations; all come back through reap, in any order. */
	void (*submit)(struct kvt_io *io, struct kvt_io_op *list);
	/* Returns up to max finished operations; waits up to wait_ns (0: does not wait) for the
	 * first, or a wake. */
	size_t (*reap)(struct kvt_io *io, struct kvt_io_op **out, size_t max, int64_t wait_ns);
	void (*wake)(struct kvt_io *io); /* from any thread: a reap that waits returns */

	const struct kvt_io_mode *(*mode)(struct kvt_io *io);
	const char *(*why)(struct kvt_io *io); /* cause of the last failure, "" if none */
	void (*destroy)(struct kvt_io *io);    /* nothing is under way, files are closed */

	/* Is what lock took still the folder's lock: was neither it nor the folder removed?
	 * NULL: always. */
	bool (*holds)(struct kvt_io *io);
};

struct kvt_io {
	const struct kvt_io_ops *ops;
};

/* Passed to kvt_open: makes a kvt_io for a folder, which is created if missing. */
struct kvt_io_layer {
	enum kvt_status (*create)(void *self, const char *folder,
		const struct kvt_io_options *options, struct kvt_io **out);
	void *self;
};

#ifdef __cplusplus
}
#endif

#endif
