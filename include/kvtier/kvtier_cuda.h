/*
 * kvtier_cuda.h - between an engine's paged KV cache and the chunks of libkvtier.
 *
 * An engine keeps the keys and values of a prompt in blocks that lie anywhere in the memory of a
 * device, one tensor per layer. A chunk is one run of bytes: [layer][block][a block's numbers in
 * logical order], for any strides of the engine. A gather copies blocks into a chunk, a scatter
 * copies (a part of) a chunk into blocks. The layout is data, so the same code handles any order of
 * axes, keys and values together or apart, and padding.
 *
 * Device -1 is the machine's own memory: the host backend, always there. A device number is a CUDA
 * device, used through libkvtier_cuda.so, which kvt_gpu_create loads; libkvtier itself links no
 * CUDA, and libkvtier_cuda.so nothing but the driver, by dlopen. If that library is missing, too
 * old or finds no driver, kvt_gpu_create returns KVT_ENOTSUP and the log has the cause.
 *
 * Threads: every function may be called from any thread, except where it says otherwise. The
 * library starts no thread for this: running operations proceed on the device, and the next begin,
 * poll or wait of any thread starts the queued ones. The library creates a CUDA context on the
 * configured device only, and each call leaves the calling thread's current context and capture
 * mode as they were.
 *
 * Fragments (kvtier_fragments.h) use the same streams and pinned memory: copies of tokens instead
 * of blocks, with keys that the device rotates to other positions.
 *
 * Errors: the library turns the driver's errors into its own and leaves none behind (the runtime's
 * "last error" of a thread stays as it was). A failed operation is a miss: the caller must not
 * commit the gathered chunk, and has to compute the blocks of a failed scatter. After the loss of a
 * device every operation fails.
 *
 * Ownership: arguments are read during the call. The memory of a job (segments, blocks, the event)
 * has to stay until the operation is over, that is until kvt_gpu_poll or kvt_gpu_wait returns
 * anything but KVT_BUSY: a copy that a device has begun cannot be cancelled.
 *
 * Units are bytes and nanoseconds. Structs grow at the end, as in kvtier.h.
 */
#ifndef KVTIER_CUDA_H
#define KVTIER_CUDA_H

#include "kvtier/kvtier.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KVT_GPU_AXES 6 /* most axes of a block */

/* An axis of a block. Strides are those of the paged cache. */
struct kvt_gpu_axis {
	uint64_t count; /* > 0 */
	int64_t stride; /* bytes from one to the next, > 0 unless count is 1 */
};

/*
 * Addresses of the numbers in an engine's cache. Number (i, j, ...) of block b in layer l is at
 * layers[l] + b * block_stride + i * axes[0].stride + j * axes[1].stride + ... and the chunk has
 * them in the order of the axes, the last one fastest. The axis of the blocks itself is no member
 * of axes: of a tensor [2, blocks, tokens, heads, size] the axes are 2, tokens, heads, size. Two
 * numbers must not share a byte; a layout that cannot be proven to keep them apart is refused.
 */
struct kvt_gpu_layout {
	uint32_t size;          /* sizeof(struct kvt_gpu_layout) */
	uint32_t element_bytes; /* 1, 2, 4 or 8 */
	uint32_t axis_count;    /* 1 to KVT_GPU_AXES */
	uint32_t layer_count;   /* 1 to 65536 */
	struct kvt_gpu_axis axes[KVT_GPU_AXES];
	uint64_t block_count; /* block ids are below it; at most 2^32 - 1 */
	int64_t block_stride; /* > 0 unless there is one block */
	void *const *layers;  /* layer_count addresses, of the device's memory; copied */
};

/* How a device copies. */
enum kvt_gpu_method {
	KVT_GPU_AUTO = 0,    /* the fastest by a calibration, which is saved */
	KVT_GPU_KERNEL = 1,  /* a kernel between the paged cache and pinned memory */
	KVT_GPU_COPIES = 2,  /* the copy engine, one copy for each contiguous run */
	KVT_GPU_STAGING = 3, /* a kernel into memory of the device, then the copy engine */
};

/* All settings. A comment ends with the allowed range and the default. */
struct kvt_gpu_config {
	uint32_t size;  /* sizeof(struct kvt_gpu_config), by kvt_gpu_config_init */
	uint32_t abi;   /* KVT_ABI, likewise */
	int32_t device; /* -1: this machine's memory; else the CUDA device's number */
	uint32_t method; /* enum kvt_gpu_method */
	uint32_t ops;    /* limit of operations begun and not over; 1 to 4096, 64 */
	uint32_t streams; /* the device's streams per direction; 1 to 8, 2 */
	uint32_t depth;   /* most operations per direction on the device at once; 1 to 64, 8 */
	uint32_t reserved;
	double multiprocessor_share; /* limit of all kernels together; > 0 to 1, 0.125 */
	/* Device memory for staging, per stream; 64 KiB to 1 GiB, 4 MiB. */
	uint64_t staging_bytes;
	uint64_t pin_bytes; /* bytes pinned per driver call; 1 MiB to 64 GiB, 1 GiB */
	/* NULL: libkvtier_cuda.so in libkvtier's folder, then by the loader's search. */
	const char *library;
	const char *driver; /* NULL: libcuda.so.1; another one for tests */
	/* File of calibrations; NULL: kvtier/gpu in the user's cache folder; "": none. */
	const char *memo;
	const struct kvt_clock *clock; /* borrowed until destroy; NULL: the machine's */
	void (*log)(void *self, uint32_t level, const char *line); /* NULL: standard error */
	void *log_self;
};

/* Fills in defaults; `size` is sizeof(struct kvt_gpu_config) as the caller was compiled. */
KVT_API void kvt_gpu_config_init(struct kvt_gpu_config *config, size_t size);

struct kvt_gpu; /* one engine's paged cache on one device */

/*
 * KVT_EINVAL: configuration or layout; KVT_ENOTSUP: no such device, or no support for it;
 * KVT_ENOMEM. With KVT_GPU_AUTO and no matching line in the memo the call calibrates, for at most
 * about a second, on memory of its own.
 */
KVT_API enum kvt_status kvt_gpu_create(const struct kvt_gpu_config *config,
	const struct kvt_gpu_layout *layout, struct kvt_gpu **out) KVT_MUST_CHECK;

/* Waits for running operations, drops queued ones, and unpins memory. To be called once, when no
 * other call is running, before the memory of jobs and pinned memory is freed. NULL is allowed. */
KVT_API void kvt_gpu_destroy(struct kvt_gpu *g);

/* Bytes of a chunk of so many blocks; 0: above a chunk's limit (4 GiB less a byte). */
KVT_API uint64_t kvt_gpu_chunk_bytes(const struct kvt_gpu *g, size_t blocks);

/*
 * Pins memory of this machine, so that the device copies it asynchronously without the processor;
 * in pieces of config.pin_bytes, about 0.1 s per GB, each usable as soon as it is pinned. base and
 * bytes are cut to whole pages. May run in a thread of its own while others copy. KVT_ENOTSUP,
 * KVT_EIO, KVT_ENOMEM: memory pinned until then stays pinned, the rest is copied more slowly. The
 * host backend needs no pinning and returns KVT_OK.
 */
KVT_API enum kvt_status kvt_gpu_pin(struct kvt_gpu *g, void *base, uint64_t bytes) KVT_MUST_CHECK;
/* Pins a cache's arena. `g` is to be destroyed before kvt_close(k). */
KVT_API enum kvt_status kvt_gpu_pin_cache(struct kvt_gpu *g, struct kvt *k) KVT_MUST_CHECK;

/* Work that has to precede the operation. */
enum kvt_gpu_order {
	KVT_GPU_ANY = 0,          /* nothing */
	/* A recorded cudaEvent_t or CUevent, not recorded again before the operation is over. */
	KVT_GPU_AFTER_EVENT = 1,
	/* The work in a cudaStream_t or CUstream now; NULL: the default stream. */
	KVT_GPU_AFTER_STREAM = 2,
};

/*
 * Blocks first, first + 1, ... of a chunk that has `count` blocks, and where they lie in the paged
 * cache. The segments, one after another, are the chunk's bytes (kvt_gpu_chunk_bytes(count) at
 * least); only the bytes of the named blocks are touched.
 */
struct kvt_gpu_job {
	uint32_t size;  /* sizeof(struct kvt_gpu_job) */
	uint32_t order; /* enum kvt_gpu_order */
	void *after;    /* event or stream; ignored by the host backend */
	const int64_t *blocks; /* block_count ids; for a scatter, no id twice */
	size_t block_count;    /* > 0 */
	size_t first, count;   /* first + block_count <= count */
	const struct kvt_segment *segments;
	size_t segment_count;
};

/*
 * Begins a copy: gather from the paged cache into the chunk, scatter from the chunk into the cache.
 * Queued scatters start before queued gathers, which have half of config.depth meanwhile. KVT_BUSY:
 * config.ops operations are begun; KVT_EINVAL; KVT_EIO: the device was lost. With memory that is
 * not pinned the call may take as long as the copy, on the host backend it does.
 */
KVT_API enum kvt_status kvt_gpu_gather_begin(
	struct kvt_gpu *g, const struct kvt_gpu_job *job, uint64_t *op) KVT_MUST_CHECK;
KVT_API enum kvt_status kvt_gpu_scatter_begin(
	struct kvt_gpu *g, const struct kvt_gpu_job *job, uint64_t *op) KVT_MUST_CHECK;

/*
 * KVT_BUSY: the operation is not over; else it is, and its number is invalid from now on. KVT_OK:
 * all bytes are in place. KVT_EIO: the driver failed, any byte may be wrong. KVT_MISS: no such
 * operation.
 */
KVT_API enum kvt_status kvt_gpu_poll(struct kvt_gpu *g, uint64_t op) KVT_MUST_CHECK;
/* Waits at most timeout_ns. KVT_BUSY: the operation is not over, its memory still in use. */
KVT_API enum kvt_status kvt_gpu_wait(
	struct kvt_gpu *g, uint64_t op, uint64_t timeout_ns) KVT_MUST_CHECK;

/* Counts since creation. */
struct kvt_gpu_stats {
	uint32_t size; /* set by the caller */
	uint32_t multiprocessors; /* most that kernels use; 0: none */
	uint64_t gathers, gather_bytes, scatters, scatter_bytes; /* that succeeded */
	uint64_t failed;      /* operations */
	uint64_t refused;     /* KVT_BUSY at a begin */
	uint64_t under_way;   /* operations now */
	uint64_t most_under_way;
	uint64_t by_kernel, by_copies, by_staging; /* operations of a device */
	uint64_t unpinned;     /* ... that touched memory that is not pinned */
	uint64_t pinned_bytes; /* now */
	uint64_t pinned_pieces;
};
KVT_API enum kvt_status kvt_gpu_stats(
	struct kvt_gpu *g, struct kvt_gpu_stats *out) KVT_MUST_CHECK;

/* Describes backend, device and methods by size in some lines for people. The text is cut to
 * `bytes`, always terminated; returns the length of the uncut text. */
KVT_API size_t kvt_gpu_describe(struct kvt_gpu *g, char *text, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
