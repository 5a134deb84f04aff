/*
 * cuda_backend.h - the structs and functions that the files of the CUDA backend share.
 *
 * cuda.c creates, destroys and describes an engine
 * cuda_visit.c makes the engine's context current for a call; the driver's errors
 * cuda_ops.c operations: begun, waiting, on the device, over
 * cuda_move.c submits an operation's bytes to the device, by each method
 * cuda_pin.c pinned memory, piece by piece
 * cuda_tune.c finds the fastest method
 *
 * One lock guards an engine; it covers calls of the driver, between kvt_cuda_enter and
 * kvt_cuda_leave. Only pinning, which takes long, runs without the lock.
 */
#ifndef KVT_CUDA_BACKEND_H
#define KVT_CUDA_BACKEND_H

#include <pthread.h>

#include "gpu/cuda_driver.h"
#include "gpu/gpu.h"

#define KVT_CUDA_STREAMS    8u /* most streams of a direction */
#define KVT_CUDA_BATCH      1024u /* copies submitted at once */
#define KVT_CUDA_CLASSES    3u /* number of classes of operations, by size */
#define KVT_CUDA_THREADS    512u /* threads of one block when the kernel is launched */

/* A piece of this machine's memory that is pinned for the device. */
struct kvt_cuda_piece {
	uint64_t base, bytes;
	uint64_t device; /* the address that the device uses for `base` */
};

/* A paged cache in the memory of the device. */
struct kvt_cuda_target {
	const struct kvt_gpu_paged *paged;
	/* address in the device's memory of the layers' addresses; 0: there is none, as without
	 * kernels */
	uint64_t layers;
};

enum kvt_cuda_state {
	KVT_CUDA_FREE,
	KVT_CUDA_WAITING, /* waits for its turn */
	KVT_CUDA_RUNNING, /* some or all of its parts are on the device */
	KVT_CUDA_OVER,    /* it has ended, and the caller does not know yet */
};

/* An operation. Its events are created when first needed, and kept. */
struct kvt_cuda_op {
	enum kvt_cuda_state state;
	bool failed;
	uint32_t generation; /* part of the operation's number that callers see */
	uint32_t used;   /* set of streams that have a part of the operation, as bits */
	/* set of streams with an event at the operation's end; other streams are queried
	 * themselves */
	uint32_t marked;
	uint32_t method; /* enum kvt_gpu_method */
	struct kvt_gpu_move *move; /* owned */
	const struct kvt_cuda_target *target;
	void *marks[KVT_CUDA_STREAMS];
	void *ready; /* event that was recorded in the caller's stream at begin */
	struct kvt_cuda_op *next;
};

struct kvt_cuda_list {
	struct kvt_cuda_op *first, *last;
};

/* One direction. */
struct kvt_cuda_lane {
	void *streams[KVT_CUDA_STREAMS];
	uint64_t staging[KVT_CUDA_STREAMS]; /* 0: none */
	uint32_t next;                      /* number of the stream for the next part */
	struct kvt_cuda_list waiting, running;
	uint32_t running_count;
};

struct kvt_gpu_engine {
	struct kvt_gpu_setup setup;
	struct kvt_cuda_driver driver;
	int device;
	char name[64];
	int driver_version, capability; /* 13000; 90 */
	void *context;
	pthread_mutex_t lock;
	/* The members from here on are under the lock. Streams, staging, kernels, grid and choices
	 * do not change after create. */
	bool lost;       /* the context has ended */
	uint64_t errors; /* number of errors of the driver since create */
	uint32_t streams;  /* streams of each lane */
	uint32_t grid;     /* blocks of one launch */
	uint32_t multiprocessors; /* number of multiprocessors that all kernels together may use */
	void *module, *kernel;    /* NULL: none */
	void *turn_kernel;        /* the kernel that turns keys; NULL: keys cannot be turned */
	bool can_stage, can_pin;
	bool batches; /* the driver has a call for many copies at once */
	struct kvt_cuda_lane lanes[2]; /* gathers, scatters */
	/* by the number of a view; 0: the engine's own layout */
	struct kvt_cuda_target targets[KVT_GPU_VIEWS + 1];
	uint32_t target_count;
	uint32_t choice[2][KVT_CUDA_CLASSES]; /* enum kvt_gpu_method */
	/* bytes per second in one direction alone, and with both at once; 0: not measured */
	double rates[2][KVT_CUDA_CLASSES][KVT_GPU_STAGING + 1];
	double both[KVT_CUDA_CLASSES][KVT_GPU_STAGING + 1];
	struct kvt_cuda_op *ops; /* config.ops */
	struct kvt_cuda_piece *pieces; /* sorted by address */
	size_t piece_count, piece_room;
	struct kvt_gpu_stats stats;
	/* copies that are collected for one call */
	uint64_t batch_to[KVT_CUDA_BATCH], batch_from[KVT_CUDA_BATCH];
	size_t batch_bytes[KVT_CUDA_BATCH];
	uint32_t batch_count;
	bool batch_pinned;
};

/* Returns the class of operations of this many bytes, below KVT_CUDA_CLASSES. */
static inline uint32_t kvt_cuda_class(uint64_t bytes)
{
	return bytes <= 1u << 20 ? 0 : bytes <= 8u << 20 ? 1 : 2;
}

/* --- cuda_visit.c --- */

/* A thread's state before a visit. */
struct kvt_cuda_visit {
	int capture_mode;
	bool exchanged;
};

/* Makes the engine's context current on this thread. Returns false if that is impossible; then
 * kvt_cuda_leave must not be called. Calls of the driver between enter and leave do not disturb a
 * graph that another thread may be capturing. */
bool kvt_cuda_enter(struct kvt_gpu_engine *e, struct kvt_cuda_visit *visit);
void kvt_cuda_leave(struct kvt_gpu_engine *e, const struct kvt_cuda_visit *visit);

/* Returns true if `error` is no error. Otherwise logs it, but not every time, and notes whether the
 * context has ended. */
bool kvt_cuda_fine(struct kvt_gpu_engine *e, int error, const char *what);

/* --- cuda_ops.c --- */

enum kvt_status kvt_cuda_begin(
	struct kvt_gpu_engine *e, struct kvt_gpu_move *move, uint64_t *op) KVT_MUST_CHECK;
enum kvt_status kvt_cuda_poll(struct kvt_gpu_engine *e, uint64_t op) KVT_MUST_CHECK;

/* Submits an operation to the device. Its state is RUNNING afterwards, even if a part failed. */
void kvt_cuda_start(struct kvt_gpu_engine *e, struct kvt_cuda_op *op);
/* Returns whether the device has finished the operation. Sets op->failed. */
bool kvt_cuda_over(struct kvt_gpu_engine *e, struct kvt_cuda_op *op);
void kvt_cuda_op_finish(struct kvt_gpu_engine *e, struct kvt_cuda_op *op); /* its events */

/* --- cuda_move.c --- */

/* Submits all parts of an operation by op->method. Returns false if the driver refused a part. */
bool kvt_cuda_submit(struct kvt_gpu_engine *e, struct kvt_cuda_op *op);
/* Returns whether the method is possible for an operation on this memory. */
bool kvt_cuda_can(
	const struct kvt_gpu_engine *e, uint32_t method, const struct kvt_gpu_move *move);

/* --- cuda_pin.c --- */

enum kvt_status kvt_cuda_pin(struct kvt_gpu_engine *e, void *base, uint64_t bytes) KVT_MUST_CHECK;
/* Returns how many bytes from `address` on, at most `bytes`, are in the same piece, or in none.
 * *device: the address that the device uses, 0 where the memory is not pinned. The caller holds the
 * lock. */
uint64_t kvt_cuda_piece_at(
	const struct kvt_gpu_engine *e, uint64_t address, uint64_t bytes, uint64_t *device);
bool kvt_cuda_pinned(const struct kvt_gpu_engine *e, const struct kvt_gpu_move *move);
/* Adds a piece that the driver has allocated, and so pinned. The caller holds the lock.
 * KVT_ENOMEM. */
enum kvt_status kvt_cuda_piece_add(
	struct kvt_gpu_engine *e, struct kvt_cuda_piece piece) KVT_MUST_CHECK;
void kvt_cuda_piece_drop(struct kvt_gpu_engine *e, uint64_t base);
void kvt_cuda_unpin_all(struct kvt_gpu_engine *e);

/* --- cuda_tune.c --- */

/* Sets e->choice from the configuration, from the memo, or by a measurement. */
void kvt_cuda_tune(struct kvt_gpu_engine *e);

#endif
