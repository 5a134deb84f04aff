/*
 * host.c - the backend for memory of this machine: the calling thread copies.
 *
 * A chunk that does not fit the core's cache is written past it, like in put: the cached lines are
 * worth more than the chunk, and no line need be read before it is overwritten. Both directions do
 * so, as long as a run covers whole lines; a scatter's target is read by the engine only after all
 * other layers have been written. Measured in ratios to memcpy, 4 MiB chunks of 16-token blocks:
 * cache/gpu/README.md.
 *
 * Only the caller's thread copies: the engine has better use for other cores. Callers may copy in
 * several threads at once.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/gpu.h"
#include "chunk/streaming.h"

#define LARGE ((uint64_t)256 * 1024) /* a copy of at least this size bypasses the cache */

struct kvt_gpu_engine {
	const struct kvt_gpu_paged *paged; /* its own */
	_Atomic uint64_t begun; /* number of the last operation that was begun */
};

/* Position of the next byte in the chunk; it only moves forwards. */
struct cursor {
	const struct kvt_segment *segment;
	uint64_t begin; /* offset in the chunk of the segment's first byte */
};

static char *at_offset(struct cursor *c, uint64_t offset, uint64_t *left)
{
	while (offset >= c->begin + c->segment->bytes) {
		c->begin += c->segment->bytes;
		c->segment++;
	}
	*left = c->begin + c->segment->bytes - offset;
	return (char *)c->segment->base + (offset - c->begin);
}

/* Copies `runs` runs of `run` bytes each; on each side they are one stride apart. */
static void copy_runs(char *to, uint64_t to_stride, const char *from, uint64_t from_stride,
	uint32_t runs, uint32_t run, bool past)
{
	if (past && (((uintptr_t)to | to_stride | run) % KVT_STREAM_LINE) == 0) {
		for (; runs > 0; runs--, to += to_stride, from += from_stride)
			kvt_stream_lines(to, from, run);
		return;
	}
	for (; runs > 0; runs--, to += to_stride, from += from_stride)
		memcpy(to, from, run);
}

/* Copies a strip that crosses segments: run by run, piece by piece. */
static void copy_cut(const struct kvt_gpu_move *move, struct cursor *c, struct kvt_gpu_strip *s)
{
	for (uint32_t i = 0; i < s->runs; i++) {
		for (uint32_t at = 0; at < s->run;) {
			uint64_t left;
			char *flat = at_offset(c, s->offset + (uint64_t)i * s->run + at, &left);
			char *paged = (char *)(uintptr_t)(s->paged + i * s->stride + at);
			uint32_t n = s->run - at < left ? s->run - at : (uint32_t)left;

			memcpy(move->scatter ? paged : flat, move->scatter ? flat : paged, n);
			at += n;
		}
	}
}

static void copy(const struct kvt_gpu_move *move)
{
	bool past = move->bytes >= LARGE;
	struct cursor cursor = {move->segments, 0};
	struct kvt_gpu_walk walk;
	struct kvt_gpu_strip s;

	kvt_gpu_walk_init(&walk, move->paged, move);
	while (kvt_gpu_walk_next(&walk, &s)) {
		uint64_t left;
		char *flat = at_offset(&cursor, s.offset, &left);
		char *page = (char *)(uintptr_t)s.paged;

		if ((uint64_t)s.runs * s.run > left)
			copy_cut(move, &cursor, &s);
		else if (move->scatter)
			copy_runs(page, s.stride, flat, s.run, s.runs, s.run, past);
		else
			copy_runs(flat, s.run, page, s.stride, s.runs, s.run, past);
	}
	if (past)
		kvt_stream_fence(); /* makes the bytes visible to other threads */
}

/* Turns keys, by the same function that the kernel of a device calls. */
static void turn(const struct kvt_gpu_move *move)
{
	struct kvt_gpu_turnings turnings;
	struct kvt_gpu_turning t;

	kvt_gpu_turnings_init(&turnings, move, (uint64_t)(uintptr_t)move->paged->layers);
	while (kvt_gpu_turnings_next(&turnings, &t))
		kvt_gpu_turn_thread(&t, &t.angles, 0, 1);
}

static enum kvt_status host_create(const struct kvt_gpu_setup *setup, struct kvt_gpu_engine **out)
{
	struct kvt_gpu_engine *e = calloc(1, sizeof(*e));

	if (e == NULL)
		return KVT_ENOMEM;
	e->paged = setup->paged;
	*out = e;
	return KVT_OK;
}

static void host_destroy(struct kvt_gpu_engine *e)
{
	free(e);
}

static enum kvt_status host_add_view(struct kvt_gpu_engine *e, const struct kvt_gpu_paged *paged)
{
	(void)e;
	(void)paged; /* moves name it */
	return KVT_OK;
}

static enum kvt_status host_begin(struct kvt_gpu_engine *e, struct kvt_gpu_move *move, uint64_t *op)
{
	copy(move);
	turn(move);
	free(move);
	*op = atomic_fetch_add_explicit(&e->begun, 1, memory_order_relaxed) + 1;
	return KVT_OK;
}

static enum kvt_status host_poll(struct kvt_gpu_engine *e, uint64_t op)
{
	return op > 0 && op <= atomic_load_explicit(&e->begun, memory_order_relaxed) ? KVT_OK
										     : KVT_MISS;
}

static enum kvt_status host_pin(struct kvt_gpu_engine *e, void *base, uint64_t bytes)
{
	(void)e;
	(void)base;
	(void)bytes;
	return KVT_OK; /* the processor can copy any memory without pinning */
}

static void host_stats(struct kvt_gpu_engine *e, struct kvt_gpu_stats *out)
{
	(void)e;
	(void)out;
}

static size_t host_describe(struct kvt_gpu_engine *e, char *text, size_t bytes)
{
	int n = snprintf(text, bytes, "host: runs of %u bytes\n", e->paged->shape.run.by);

	return n < 0 ? 0 : (size_t)n;
}

const struct kvt_gpu_backend kvt_gpu_host = {
	.version = KVT_GPU_BACKEND,
	.name = "host",
	.create = host_create,
	.destroy = host_destroy,
	.add_view = host_add_view,
	.begin = host_begin,
	.poll = host_poll,
	.pin = host_pin,
	.stats = host_stats,
	.describe = host_describe,
};
