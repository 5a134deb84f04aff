/*
 * cuda_move.c - submits an operation's bytes to the device, by three methods.
 *
 * Kernel: threads of the device copy between the paged cache and pinned memory across the bus.
 * Copies: each contiguous run is one copy of the copy engine, many in one call where the driver
 * supports that. Staging: the kernel gathers into memory of the device, at that memory's speed, and
 * one long copy takes the bytes across the bus (a scatter the other way round), which needs neither
 * long runs nor multiprocessors for the bus. The fastest method depends on the device and the runs
 * (cuda_tune.c).
 *
 * An operation is cut into windows that go to the direction's streams in turn: one window's kernel
 * overlaps another's copy. A stream executes its windows in order, so that its staging memory is
 * free again before its next window. Before its first window a stream waits for the caller's event.
 * Where keys are turned after the copy, all windows go to one stream, which keeps that order.
 *
 * No function here waits. A failing call ends the submission; parts already submitted still run.
 */
#include "gpu/cuda_backend.h"

/* A window: the part of an operation that goes to a stream at once. */
struct window {
	struct kvt_gpu_engine *e;
	struct kvt_cuda_op *op;
	/* the whole operation, or a part of it with at most KVT_GPU_LIST blocks */
	const struct kvt_gpu_move *move;
	uint32_t from, to;               /* range of bytes of the move */
	uint32_t stream;                 /* number of the stream within its direction */
};

static struct kvt_cuda_lane *lane_of(const struct window *w)
{
	return &w->e->lanes[w->op->move->scatter];
}

static void *handle_of(const struct window *w)
{
	return lane_of(w)->streams[w->stream];
}

/* Chooses the stream for the window: the next one of the direction, or the same one again. A stream
 * waits for the caller's event before its first window. */
static bool take_stream(struct window *w)
{
	struct kvt_cuda_lane *lane = lane_of(w);
	const struct kvt_gpu_move *move = w->op->move;
	void *before = move->order == KVT_GPU_AFTER_EVENT ? move->after : w->op->ready;

	if (move->turn != NULL && w->op->used != 0)
		return true;
	w->stream = lane->next;
	lane->next = (lane->next + 1) % w->e->streams;
	if ((w->op->used & 1u << w->stream) != 0)
		return true;
	w->op->used |= 1u << w->stream;
	return move->order == KVT_GPU_ANY ||
		kvt_cuda_fine(w->e, w->e->driver.stream_wait(handle_of(w), before, 0),
			"waiting for an event");
}

/* --- copies --- */

/* Submits all collected copies, one call for each. */
static bool flush_singly(struct kvt_gpu_engine *e, bool up, void *stream)
{
	struct kvt_cuda_driver *d = &e->driver;
	int error = KVT_CUDA_SUCCESS;

	for (uint32_t i = 0; i < e->batch_count && error == KVT_CUDA_SUCCESS; i++) {
		if (up)
			error = d->copy_up(e->batch_to[i],
				(const void *)(uintptr_t)e->batch_from[i], e->batch_bytes[i],
				stream);
		else
			error = d->copy_down((void *)(uintptr_t)e->batch_to[i], e->batch_from[i],
				e->batch_bytes[i], stream);
	}
	return kvt_cuda_fine(e, error, "copying");
}

static int flush_at_once(struct kvt_gpu_engine *e, void *stream)
{
	struct kvt_cuda_copy_attributes attributes = {
		.source_order = KVT_CUDA_SOURCE_IN_STREAM_ORDER, .flags = KVT_CUDA_BESIDE_COMPUTE};
	size_t first = 0, failed = 0;

	if (e->driver.copy_batch != NULL)
		return e->driver.copy_batch(e->batch_to, e->batch_from, e->batch_bytes,
			e->batch_count, &attributes, &first, 1, stream);
	return e->driver.copy_batch_1(e->batch_to, e->batch_from, e->batch_bytes, e->batch_count,
		&attributes, &first, 1, &failed, stream);
}

/* Submits the collected copies. */
static bool flush(const struct window *w)
{
	struct kvt_gpu_engine *e = w->e;
	bool fine, up = w->op->move->scatter;
	int error = KVT_CUDA_NOT_SUPPORTED;

	if (e->batches && e->batch_pinned && e->batch_count > 1)
		error = flush_at_once(e, handle_of(w));
	if (error == KVT_CUDA_NOT_SUPPORTED) {
		e->batches = e->batches && !(e->batch_pinned && e->batch_count > 1);
		fine = flush_singly(e, up, handle_of(w));
	} else {
		fine = kvt_cuda_fine(e, error, "copying many pieces");
	}
	e->batch_count = 0;
	e->batch_pinned = true;
	return fine;
}

/* Collects a copy between memory of the device and of this machine; it is cut at the ends of pinned
 * pieces. */
static bool collect(const struct window *w, uint64_t device, uint64_t host, uint64_t bytes)
{
	struct kvt_gpu_engine *e = w->e;

	while (bytes > 0) {
		uint64_t mapped, here = kvt_cuda_piece_at(e, host, bytes, &mapped);

		if (e->batch_count == KVT_CUDA_BATCH && !flush(w))
			return false;
		e->batch_pinned = e->batch_pinned && mapped != 0;
		e->batch_to[e->batch_count] = w->op->move->scatter ? device : host;
		e->batch_from[e->batch_count] = w->op->move->scatter ? host : device;
		e->batch_bytes[e->batch_count++] = here;
		device += here;
		host += here;
		bytes -= here;
	}
	return true;
}

static void forget_collected(struct kvt_gpu_engine *e)
{
	e->batch_count = 0;
	e->batch_pinned = true;
}

static bool submit_copies(struct window *w)
{
	const struct kvt_gpu_move *move = w->op->move;
	const struct kvt_segment *segment = move->segments;
	struct kvt_gpu_runs runs;
	struct kvt_gpu_run run;
	uint64_t begin = 0, since = 0; /* begin of the segment; bytes given to the present stream */

	forget_collected(w->e);
	if (!take_stream(w))
		return false;
	kvt_gpu_runs_init(&runs, w->op->target->paged, move);
	while (kvt_gpu_runs_next(&runs, &run)) {
		while (run.bytes > 0) {
			uint64_t in, here;

			while (run.offset >= begin + segment->bytes)
				begin += (segment++)->bytes;
			in = run.offset - begin;
			here = segment->bytes - in < run.bytes ? segment->bytes - in : run.bytes;
			if (!collect(w, run.paged, (uint64_t)(uintptr_t)segment->base + in, here))
				return false;
			run.paged += here;
			run.offset += here;
			run.bytes -= here;
			since += here;
		}
		if (since >= w->e->setup.config->staging_bytes) {
			since = 0;
			if (!flush(w) || !take_stream(w))
				return false;
		}
	}
	return flush(w);
}

/* --- kernel --- */

/* Launches a kernel that copies bytes [from, to) of the move between the paged cache and another
 * memory, in which the chunk's first byte would be at `flat`. `dense`: that memory has only the
 * blocks of the move, without gaps. */
static bool launch(const struct window *w, uint32_t from, uint32_t to, uint64_t flat, bool dense)
{
	const struct kvt_cuda_target *target = w->op->target;
	const struct kvt_gpu_move *move = w->move;
	struct kvt_gpu_launch l = {
		.shape = target->paged->shape,
		.layers = target->layers,
		.flat = flat,
		.from = from,
		.scatter = move->scatter,
		.whole = dense ? move->blocks : move->whole,
		.first = dense ? 0 : move->first,
		.blocks = kvt_gpu_divisor_of(move->blocks * target->paged->shape.block.by),
	};
	void *arguments[] = {&l};
	uint32_t most = w->e->grid, blocks;

	l.unit = kvt_gpu_unit_of(l.shape.unit | from | to | flat);
	l.units = (to - from) / l.unit;
	blocks = (l.units - 1) / (KVT_CUDA_THREADS * KVT_GPU_AT_ONCE) + 1;
	for (uint32_t i = 0; i < move->blocks; i++)
		l.ids[i] = move->ids[i];
	return kvt_cuda_fine(w->e,
		w->e->driver.launch(w->e->kernel, blocks < most ? blocks : most, 1, 1,
			KVT_CUDA_THREADS, 1, 1, 0, handle_of(w), arguments, NULL),
		"starting the kernel");
}

static uint32_t more(uint32_t a, uint32_t b)
{
	return a > b ? a : b;
}

static uint32_t less(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* Copies directly to or from the segments, with one launch for each pinned piece of them. */
static bool window_kernel(const struct window *w)
{
	const struct kvt_gpu_paged *paged = w->op->target->paged;
	uint64_t offset = 0;

	for (size_t i = 0; i < w->move->segment_count; i++) {
		uint64_t at = (uint64_t)(uintptr_t)w->move->segments[i].base;
		uint64_t left = w->move->segments[i].bytes;

		while (left > 0) {
			uint64_t device, here = kvt_cuda_piece_at(w->e, at, left, &device);
			uint32_t from = more(w->from, kvt_gpu_move_before(paged, w->move, offset));
			uint32_t to = less(w->to, kvt_gpu_move_before(paged, w->move, offset + here));

			if (from < to && !launch(w, from, to, device - offset, false))
				return false;
			at += here;
			left -= here;
			offset += here;
		}
	}
	return true;
}

/* --- staging --- */

/* Collects the copies between the staging memory and the segments: one for each contiguous part of
 * the chunk in the window. */
static bool collect_stretches(const struct window *w, uint64_t staging)
{
	const struct kvt_gpu_move *move = w->move;
	uint32_t block = w->op->target->paged->shape.block.by;
	uint32_t layer_bytes = move->blocks * block;
	const struct kvt_segment *segment = move->segments;
	uint64_t begin = 0;

	for (uint32_t at = w->from; at < w->to;) {
		uint32_t layer = at / layer_bytes, in = at % layer_bytes;
		uint64_t offset =
			((uint64_t)layer * move->whole + move->first) * block + in;
		/* if the move has all blocks of the chunk, its bytes have no gaps in the chunk */
		uint32_t end = move->blocks == move->whole ? w->to
			: less(w->to, at - in + layer_bytes);
		uint64_t here;

		while (offset >= begin + segment->bytes)
			begin += (segment++)->bytes;
		here = begin + segment->bytes - offset;
		if (here > end - at)
			here = end - at;
		if (!collect(w, staging + (at - w->from),
			(uint64_t)(uintptr_t)segment->base + (offset - begin), here))
			return false;
		at += (uint32_t)here;
	}
	return flush(w);
}

static bool window_staging(const struct window *w)
{
	uint64_t staging = lane_of(w)->staging[w->stream];
	uint64_t flat = staging - w->from;

	forget_collected(w->e);
	if (w->op->move->scatter)
		return collect_stretches(w, staging) && launch(w, w->from, w->to, flat, true);
	return launch(w, w->from, w->to, flat, true) && collect_stretches(w, staging);
}

/* --- all --- */

/* Submits a part of an operation that fits one launch, window by window. */
static bool submit_windows(struct window *w)
{
	uint32_t bytes = (uint32_t)w->move->bytes, size = (uint32_t)w->e->setup.config->staging_bytes;

	size &= ~(uint32_t)15; /* makes windows begin where the widest unit may begin */
	for (w->from = 0; w->from < bytes; w->from = w->to) {
		w->to = bytes - w->from < size ? bytes : w->from + size;
		if (!take_stream(w))
			return false;
		if (!(w->op->method == KVT_GPU_KERNEL ? window_kernel(w) : window_staging(w)))
			return false;
	}
	return true;
}

/* Submits all bytes of the operation. */
static bool submit_bytes(struct window *w, struct kvt_gpu_move *part)
{
	struct kvt_cuda_op *op = w->op;

	if (op->method == KVT_GPU_COPIES)
		return submit_copies(w);
	for (uint32_t done = 0; done < op->move->blocks; done += part->blocks) {
		part->ids = op->move->ids + done;
		part->first = op->move->first + done;
		part->blocks = less(op->move->blocks - done, KVT_GPU_LIST);
		part->bytes = kvt_gpu_paged_chunk(op->target->paged, part->blocks);
		if (!submit_windows(w))
			return false;
	}
	return true;
}

/* --- keys that turn --- */

/* Submits the kernel that turns keys, in the stream of their bytes, so that it runs after them. */
static bool submit_turn(const struct window *w)
{
	struct kvt_gpu_turnings turnings;
	struct kvt_gpu_turning t;
	void *arguments[] = {&t};

	kvt_gpu_turnings_init(&turnings, w->op->move, w->op->target->layers);
	while (kvt_gpu_turnings_next(&turnings, &t)) {
		uint32_t blocks = (t.count - 1) / (KVT_CUDA_THREADS * KVT_GPU_AT_ONCE) + 1;

		if (!kvt_cuda_fine(w->e,
			w->e->driver.launch(w->e->turn_kernel, less(blocks, w->e->grid), 1, 1,
				KVT_CUDA_THREADS, 1, 1, 0, handle_of(w), arguments, NULL),
			"starting the kernel that turns keys"))
			return false;
	}
	return true;
}

bool kvt_cuda_submit(struct kvt_gpu_engine *e, struct kvt_cuda_op *op)
{
	struct kvt_gpu_move part = *op->move;
	struct window w = {.e = e, .op = op, .move = &part};

	if (!submit_bytes(&w, &part))
		return false;
	return op->move->turn == NULL || submit_turn(&w);
}

bool kvt_cuda_can(
	const struct kvt_gpu_engine *e, uint32_t method, const struct kvt_gpu_move *move)
{
	switch (method) {
	case KVT_GPU_KERNEL:
		return e->kernel != NULL && (move == NULL || kvt_cuda_pinned(e, move));
	case KVT_GPU_STAGING:
		return e->kernel != NULL && e->can_stage;
	default:
		return true;
	}
}
