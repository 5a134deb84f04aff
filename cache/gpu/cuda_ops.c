/*
 * cuda_ops.c - operations: begun, waiting to be submitted, on the device, over.
 *
 * FREE -> WAITING -> RUNNING -> OVER -> FREE
 *
 * A direction has config.depth operations on the device at once, enough to keep its copy engine
 * busy; the rest waits here, so that a later load still precedes waiting stores. While scatters
 * wait, gathers have half as many operations on the device: the bus carries both ways at once, and
 * without gathers one way would be idle. There is no thread: calls that begin or query operations
 * start waiting ones.
 *
 * An operation is over when the device has finished every stream that got a part of it, even after
 * a failure half-way: until then its memory is in use. An event after the last part shows the end;
 * without such an event the stream itself is queried. When the context has ended nothing runs any
 * more, and all operations are over and failed.
 */
#include <stdlib.h>

#include "gpu/cuda_backend.h"

static void append(struct kvt_cuda_list *list, struct kvt_cuda_op *op)
{
	op->next = NULL;
	if (list->first == NULL)
		list->first = op;
	else
		list->last->next = op;
	list->last = op;
}

static struct kvt_cuda_op *take_first(struct kvt_cuda_list *list)
{
	struct kvt_cuda_op *op = list->first;

	list->first = op->next;
	return op;
}

static struct kvt_cuda_lane *lane_of(struct kvt_gpu_engine *e, const struct kvt_cuda_op *op)
{
	return &e->lanes[op->move->scatter];
}

/* Changes the state of an operation; no other function does. */
static void set_state(struct kvt_gpu_engine *e, struct kvt_cuda_op *op, enum kvt_cuda_state state)
{
	const struct kvt_gpu_move *move = op->move;

	if (op->state == KVT_CUDA_FREE)
		e->stats.under_way++;
	if (state == KVT_CUDA_FREE)
		e->stats.under_way--;
	if (e->stats.under_way > e->stats.most_under_way)
		e->stats.most_under_way = e->stats.under_way;
	if (state == KVT_CUDA_OVER) {
		if (op->failed) {
			e->stats.failed++;
		} else if (move->scatter) {
			e->stats.scatters++;
			e->stats.scatter_bytes += move->bytes;
		} else {
			e->stats.gathers++;
			e->stats.gather_bytes += move->bytes;
		}
	}
	op->state = state;
}

/* Creates an event in `*event` if there is none yet. */
static bool have_event(struct kvt_gpu_engine *e, void **event)
{
	return *event != NULL ||
		kvt_cuda_fine(e, e->driver.event_create(event, KVT_CUDA_EVENT_WITHOUT_TIMING),
			"making an event");
}

/* Records an event at the operation's end, in each stream that has a part of it. */
static void mark_end(struct kvt_gpu_engine *e, struct kvt_cuda_op *op)
{
	struct kvt_cuda_lane *lane = lane_of(e, op);

	for (uint32_t i = 0; i < e->streams; i++) {
		if ((op->used & 1u << i) == 0 || !have_event(e, &op->marks[i]))
			continue;
		if (kvt_cuda_fine(e, e->driver.event_record(op->marks[i], lane->streams[i]),
			"recording an event"))
			op->marked |= 1u << i;
	}
}

/* Returns whether the operation's runs are shorter than those with which the methods were measured,
 * as the runs of a fragment's tokens are. */
static bool has_short_runs(const struct kvt_gpu_engine *e, const struct kvt_cuda_op *op)
{
	return e->setup.config->method == KVT_GPU_AUTO &&
		op->target->paged->shape.run.by < e->setup.paged->shape.run.by;
}

/* Returns the method for an operation: the choice for its size, unless its memory does not allow
 * that or its runs are too short for it. */
static uint32_t method_of(const struct kvt_gpu_engine *e, const struct kvt_cuda_op *op)
{
	uint32_t method = e->choice[op->move->scatter][kvt_cuda_class(op->move->bytes)];

	if (kvt_cuda_can(e, method, op->move) && !(method == KVT_GPU_COPIES && has_short_runs(e, op)))
		return method;
	return kvt_cuda_can(e, KVT_GPU_STAGING, op->move) ? KVT_GPU_STAGING : KVT_GPU_COPIES;
}

void kvt_cuda_start(struct kvt_gpu_engine *e, struct kvt_cuda_op *op)
{
	op->used = op->marked = 0;
	op->failed = !kvt_cuda_submit(e, op);
	mark_end(e, op);
}

/* Returns whether the device has finished the part in one stream. */
static bool part_over(struct kvt_gpu_engine *e, struct kvt_cuda_op *op, uint32_t stream)
{
	bool marked = (op->marked & 1u << stream) != 0;
	int error = marked ? e->driver.event_query(op->marks[stream])
		: e->driver.stream_query(lane_of(e, op)->streams[stream]);

	if (error == KVT_CUDA_SUCCESS)
		return true;
	if (error != KVT_CUDA_NOT_READY) {
		(void)kvt_cuda_fine(e, error, "asking for an end");
		/* the stream is queried again later, because its memory may still be in use */
		op->failed = true;
	}
	return e->lost;
}

bool kvt_cuda_over(struct kvt_gpu_engine *e, struct kvt_cuda_op *op)
{
	for (uint32_t i = 0; i < e->streams; i++) {
		if ((op->used & 1u << i) == 0)
			continue;
		if (!part_over(e, op, i))
			return false;
		op->used &= ~(1u << i);
	}
	op->failed = op->failed || e->lost;
	return true;
}

static void start_first(struct kvt_gpu_engine *e, struct kvt_cuda_lane *lane)
{
	struct kvt_cuda_op *op = take_first(&lane->waiting);
	const struct kvt_gpu_move *move = op->move;

	op->target = &e->targets[move->view];
	op->method = method_of(e, op);
	e->stats.by_kernel += op->method == KVT_GPU_KERNEL;
	e->stats.by_copies += op->method == KVT_GPU_COPIES;
	e->stats.by_staging += op->method == KVT_GPU_STAGING;
	e->stats.unpinned += !kvt_cuda_pinned(e, move);
	kvt_cuda_start(e, op);
	set_state(e, op, KVT_CUDA_RUNNING);
	append(&lane->running, op);
	lane->running_count++;
}

/* Removes finished operations from the list of a direction. */
static void collect_over(struct kvt_gpu_engine *e, struct kvt_cuda_lane *lane)
{
	struct kvt_cuda_list still = {NULL, NULL};

	while (lane->running.first != NULL) {
		struct kvt_cuda_op *op = take_first(&lane->running);

		if (kvt_cuda_over(e, op)) {
			lane->running_count--;
			set_state(e, op, KVT_CUDA_OVER);
		} else {
			append(&still, op);
		}
	}
	lane->running = still;
}

static void fail_waiting(struct kvt_gpu_engine *e, struct kvt_cuda_lane *lane)
{
	while (lane->waiting.first != NULL) {
		struct kvt_cuda_op *op = take_first(&lane->waiting);

		op->failed = true;
		set_state(e, op, KVT_CUDA_OVER);
	}
}

/* Submits all operations that may be submitted now. The caller holds the lock and has entered the
 * context. */
static void move_on(struct kvt_gpu_engine *e)
{
	struct kvt_cuda_lane *gathers = &e->lanes[0], *scatters = &e->lanes[1];
	uint32_t depth = e->setup.config->depth;

	collect_over(e, gathers);
	collect_over(e, scatters);
	while (!e->lost && scatters->waiting.first != NULL && scatters->running_count < depth)
		start_first(e, scatters);
	if (scatters->waiting.first != NULL)
		depth /= 2;
	while (!e->lost && gathers->waiting.first != NULL && gathers->running_count < depth)
		start_first(e, gathers);
	if (e->lost) {
		fail_waiting(e, gathers);
		fail_waiting(e, scatters);
	}
}

static struct kvt_cuda_op *free_op(struct kvt_gpu_engine *e)
{
	for (uint32_t i = 0; i < e->setup.config->ops; i++)
		if (e->ops[i].state == KVT_CUDA_FREE)
			return &e->ops[i];
	return NULL;
}

static enum kvt_status begin_in_context(
	struct kvt_gpu_engine *e, struct kvt_gpu_move *move, uint64_t *out)
{
	struct kvt_cuda_op *op = free_op(e);

	if (op == NULL)
		return KVT_BUSY;
	if (move->order == KVT_GPU_AFTER_STREAM &&
		(!have_event(e, &op->ready) ||
			!kvt_cuda_fine(e, e->driver.event_record(op->ready, move->after),
				"recording an event in the caller's stream")))
		return KVT_EIO;
	op->move = move;
	op->failed = false;
	set_state(e, op, KVT_CUDA_WAITING);
	append(&lane_of(e, op)->waiting, op);
	move_on(e);
	*out = (uint64_t)++op->generation << 32 | ((uint32_t)(op - e->ops) + 1);
	return KVT_OK;
}

enum kvt_status kvt_cuda_begin(struct kvt_gpu_engine *e, struct kvt_gpu_move *move, uint64_t *op)
{
	struct kvt_cuda_visit visit;
	enum kvt_status status = KVT_EIO;

	pthread_mutex_lock(&e->lock);
	if (!e->lost && kvt_cuda_enter(e, &visit)) {
		status = begin_in_context(e, move, op);
		kvt_cuda_leave(e, &visit);
	}
	pthread_mutex_unlock(&e->lock);
	return status;
}

static struct kvt_cuda_op *find_op(struct kvt_gpu_engine *e, uint64_t number)
{
	uint32_t index = (uint32_t)number - 1;
	struct kvt_cuda_op *op;

	if ((uint32_t)number == 0 || index >= e->setup.config->ops)
		return NULL;
	op = &e->ops[index];
	return op->state != KVT_CUDA_FREE && op->generation == number >> 32 ? op : NULL;
}

static void release_op(struct kvt_gpu_engine *e, struct kvt_cuda_op *op)
{
	set_state(e, op, KVT_CUDA_FREE);
	free(op->move);
	op->move = NULL;
}

enum kvt_status kvt_cuda_poll(struct kvt_gpu_engine *e, uint64_t number)
{
	enum kvt_status status = KVT_BUSY;
	struct kvt_cuda_visit visit;
	struct kvt_cuda_op *op;

	pthread_mutex_lock(&e->lock);
	op = find_op(e, number);
	if (op != NULL && op->state != KVT_CUDA_OVER && kvt_cuda_enter(e, &visit)) {
		move_on(e);
		kvt_cuda_leave(e, &visit);
	} else if (op != NULL && e->lost) {
		move_on(e); /* if the context has ended, only queries are sent to the driver */
	}
	if (op == NULL) {
		status = KVT_MISS;
	} else if (op->state == KVT_CUDA_OVER) {
		status = op->failed ? KVT_EIO : KVT_OK;
		release_op(e, op);
	}
	pthread_mutex_unlock(&e->lock);
	return status;
}

void kvt_cuda_op_finish(struct kvt_gpu_engine *e, struct kvt_cuda_op *op)
{
	if (op->ready != NULL)
		(void)kvt_cuda_fine(e, e->driver.event_destroy(op->ready), "ending an event");
	for (uint32_t i = 0; i < KVT_CUDA_STREAMS; i++)
		if (op->marks[i] != NULL)
			(void)kvt_cuda_fine(
				e, e->driver.event_destroy(op->marks[i]), "ending an event");
	free(op->move);
}
