/*
 * layout.c - checks a layout and takes it apart.
 *
 * An axis of one element is dropped, and two neighbouring axes of which the outer one's stride is the
 * extent of the inner one are one axis: what remains around the innermost contiguous run is as little
 * as can be. A block that the engine has in the chunk's order is one run.
 *
 * Numbers that overlap in memory would make a scatter's result depend on its order. Strides are taken
 * in ascending order: each must reach past everything that the smaller ones span. That refuses some
 * layouts without overlaps which no engine has, and accepts every permutation of axes with padding.
 */
#include "gpu/layout.h"

#include <stdlib.h>
#include <string.h>

#define MOST_LAYERS 65536u

uint32_t kvt_gpu_unit_of(uint64_t bits)
{
	uint64_t low = bits & -bits;

	return low == 0 || low > 16 ? 16 : (uint32_t)low;
}

struct kvt_gpu_divisor kvt_gpu_divisor_of(uint32_t by)
{
	struct kvt_gpu_divisor d = {by, KVT_GPU_NO_SHIFT};

	if (by != 0 && (by & (by - 1)) == 0)
		d.shift = (uint32_t)__builtin_ctz(by);
	return d;
}

static int by_stride(const void *a, const void *b)
{
	const struct kvt_gpu_axis *x = a, *y = b;

	return x->stride < y->stride ? -1 : x->stride > y->stride;
}

/* Do no two numbers of a layer share a byte, and does all of it fit an address space? */
static bool apart(const struct kvt_gpu_layout *layout)
{
	struct kvt_gpu_axis axes[KVT_GPU_AXES + 1];
	uint64_t extent = layout->element_bytes, reach;
	size_t n = 0;

	for (uint32_t i = 0; i < layout->axis_count; i++)
		if (layout->axes[i].count > 1)
			axes[n++] = layout->axes[i];
	if (layout->block_count > 1)
		axes[n++] = (struct kvt_gpu_axis){layout->block_count, layout->block_stride};
	qsort(axes, n, sizeof(axes[0]), by_stride);
	for (size_t i = 0; i < n; i++) {
		if (axes[i].stride <= 0 || (uint64_t)axes[i].stride < extent)
			return false;
		if (__builtin_mul_overflow((uint64_t)axes[i].stride, axes[i].count - 1, &reach) ||
			__builtin_add_overflow(extent, reach, &extent) || extent > INT64_MAX)
			return false;
	}
	return true;
}

static bool sensible(const struct kvt_gpu_layout *layout)
{
	uint64_t bytes = layout->element_bytes;

	if (layout->size < sizeof(*layout) || layout->axis_count == 0 ||
		layout->axis_count > KVT_GPU_AXES || layout->layer_count == 0 ||
		layout->layer_count > MOST_LAYERS || layout->layers == NULL)
		return false;
	if (bytes == 0 || bytes > 8 || (bytes & (bytes - 1)) != 0)
		return false;
	if (layout->block_count == 0 || layout->block_count > UINT32_MAX)
		return false;
	for (uint32_t i = 0; i < layout->axis_count; i++)
		if (layout->axes[i].count == 0 ||
			__builtin_mul_overflow(bytes, layout->axes[i].count, &bytes) ||
			bytes > UINT32_MAX)
			return false;
	for (uint32_t i = 0; i < layout->layer_count; i++)
		if (layout->layers[i] == NULL)
			return false;
	return apart(layout);
}

/* Axes of a block without those of one element, neighbours merged. Returns how many. */
static uint32_t merge_axes(const struct kvt_gpu_layout *layout, struct kvt_gpu_axis *out)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < layout->axis_count; i++) {
		const struct kvt_gpu_axis *axis = &layout->axes[i];

		if (axis->count == 1)
			continue;
		/* bounded by the extents that apart() has added up */
		if (n > 0 && (uint64_t)out[n - 1].stride == (uint64_t)axis->stride * axis->count) {
			out[n - 1].count *= axis->count;
			out[n - 1].stride = axis->stride;
		} else {
			out[n++] = *axis;
		}
	}
	return n;
}

static void make_shape(const struct kvt_gpu_layout *layout, struct kvt_gpu_shape *shape)
{
	struct kvt_gpu_axis axes[KVT_GPU_AXES];
	uint32_t n = merge_axes(layout, axes), run = layout->element_bytes, block;
	uint64_t bits;

	*shape = (struct kvt_gpu_shape){.layers = layout->layer_count};
	if (layout->block_count > 1)
		shape->block_stride = (uint64_t)layout->block_stride;
	if (n > 0 && axes[n - 1].stride == (int64_t)layout->element_bytes)
		run *= (uint32_t)axes[--n].count;
	bits = run | shape->block_stride;
	block = run;
	for (uint32_t i = 0; i < n; i++) {
		shape->counts[i] = kvt_gpu_divisor_of((uint32_t)axes[i].count);
		shape->strides[i] = (uint64_t)axes[i].stride;
		block *= (uint32_t)axes[i].count;
		bits |= shape->strides[i];
	}
	for (uint32_t i = 0; i < layout->layer_count; i++)
		bits |= (uint64_t)(uintptr_t)layout->layers[i];
	shape->outer = n;
	shape->run = kvt_gpu_divisor_of(run);
	shape->block = kvt_gpu_divisor_of(block);
	shape->unit = kvt_gpu_unit_of(bits);
}

enum kvt_status kvt_gpu_paged_init(
	struct kvt_gpu_paged *p, const struct kvt_gpu_layout *layout)
{
	uint64_t *layers;

	if (!sensible(layout))
		return KVT_EINVAL;
	layers = calloc(layout->layer_count, sizeof(*layers));
	if (layers == NULL)
		return KVT_ENOMEM;
	for (uint32_t i = 0; i < layout->layer_count; i++)
		layers[i] = (uint64_t)(uintptr_t)layout->layers[i];
	make_shape(layout, &p->shape);
	p->block_count = layout->block_count;
	p->layers = layers;
	return KVT_OK;
}

void kvt_gpu_paged_finish(struct kvt_gpu_paged *p)
{
	free(p->layers);
	p->layers = NULL;
}

uint64_t kvt_gpu_paged_chunk(const struct kvt_gpu_paged *p, uint64_t blocks)
{
	uint64_t layer = (uint64_t)p->shape.layers * p->shape.block.by; /* below 2^48 */

	return blocks == 0 || blocks > UINT32_MAX / layer ? 0 : blocks * layer;
}

/* Copies segments, cut to `bytes`; false: they have fewer. */
static bool take_segments(struct kvt_gpu_move *move, const struct kvt_gpu_job *job, uint64_t bytes)
{
	size_t n = 0;

	for (size_t i = 0; i < job->segment_count && bytes > 0; i++) {
		struct kvt_segment segment = job->segments[i];

		if (segment.bytes == 0)
			continue;
		if (segment.base == NULL)
			return false;
		if (segment.bytes > bytes)
			segment.bytes = bytes;
		bytes -= segment.bytes;
		move->segments[n++] = segment;
	}
	move->segment_count = n;
	return bytes == 0;
}

enum kvt_status kvt_gpu_move_make(const struct kvt_gpu_paged *p, const struct kvt_gpu_job *job,
	bool scatter, struct kvt_gpu_move **out)
{
	uint64_t chunk = kvt_gpu_paged_chunk(p, job->count);
	struct kvt_gpu_move *move;
	uint32_t *ids;

	if (chunk == 0 || job->block_count == 0 || job->block_count > job->count ||
		job->first > job->count - job->block_count || job->blocks == NULL ||
		job->segments == NULL || job->segment_count > chunk ||
		job->order > KVT_GPU_AFTER_STREAM)
		return KVT_EINVAL;
	if (job->order == KVT_GPU_AFTER_EVENT && job->after == NULL)
		return KVT_EINVAL;
	for (size_t i = 0; i < job->block_count; i++)
		if (job->blocks[i] < 0 || (uint64_t)job->blocks[i] >= p->block_count)
			return KVT_EINVAL;
	/* segments first: they need the greater alignment */
	move = malloc(sizeof(*move) + job->segment_count * sizeof(*move->segments) +
		job->block_count * sizeof(*ids));
	if (move == NULL)
		return KVT_ENOMEM;
	move->segments = (struct kvt_segment *)(move + 1);
	ids = (uint32_t *)(move->segments + job->segment_count);
	for (size_t i = 0; i < job->block_count; i++)
		ids[i] = (uint32_t)job->blocks[i];
	move->ids = ids;
	move->scatter = scatter;
	move->order = job->order;
	move->after = job->after;
	move->blocks = (uint32_t)job->block_count;
	move->first = (uint32_t)job->first;
	move->whole = (uint32_t)job->count;
	move->bytes = kvt_gpu_paged_chunk(p, job->block_count);
	if (!take_segments(move, job, chunk)) {
		free(move);
		return KVT_EINVAL;
	}
	*out = move;
	return KVT_OK;
}

uint32_t kvt_gpu_move_before(
	const struct kvt_gpu_paged *p, const struct kvt_gpu_move *move, uint64_t offset)
{
	uint64_t layer_bytes = (uint64_t)move->whole * p->shape.block.by;
	uint64_t begin = (uint64_t)move->first * p->shape.block.by;
	uint64_t mine = (uint64_t)move->blocks * p->shape.block.by;
	uint64_t layer = offset / layer_bytes, rest = offset % layer_bytes;

	rest = rest < begin ? 0 : rest - begin;
	return (uint32_t)(layer * mine + (rest < mine ? rest : mine));
}

void kvt_gpu_walk_init(struct kvt_gpu_walk *w, const struct kvt_gpu_paged *p,
	const struct kvt_gpu_move *move)
{
	memset(w, 0, sizeof(*w));
	w->paged = p;
	w->move = move;
}

/* Moves on by one strip of `bytes`. */
static void walk_on(struct kvt_gpu_walk *w, uint32_t bytes)
{
	const struct kvt_gpu_shape *shape = &w->paged->shape;

	w->in += bytes;
	for (uint32_t axis = shape->outer; axis-- > 1;) {
		if (++w->index[axis - 1] < shape->counts[axis - 1].by)
			return;
		w->index[axis - 1] = 0;
	}
	w->in = 0;
	if (++w->block < w->move->blocks)
		return;
	w->block = 0;
	w->layer++;
}

bool kvt_gpu_walk_next(struct kvt_gpu_walk *w, struct kvt_gpu_strip *out)
{
	const struct kvt_gpu_shape *shape = &w->paged->shape;
	const struct kvt_gpu_move *move = w->move;
	uint64_t block = (uint64_t)w->layer * move->whole + move->first + w->block;

	if (w->layer >= shape->layers)
		return false;
	out->paged = w->paged->layers[w->layer] + move->ids[w->block] * shape->block_stride;
	for (uint32_t axis = 0; axis + 1 < shape->outer; axis++)
		out->paged += w->index[axis] * shape->strides[axis];
	out->offset = block * shape->block.by + w->in;
	out->run = shape->run.by;
	out->runs = shape->outer > 0 ? shape->counts[shape->outer - 1].by : 1;
	out->stride = shape->outer > 0 ? shape->strides[shape->outer - 1] : 0;
	walk_on(w, out->runs * out->run);
	return true;
}

void kvt_gpu_runs_init(struct kvt_gpu_runs *r, const struct kvt_gpu_paged *p,
	const struct kvt_gpu_move *move)
{
	memset(r, 0, sizeof(*r));
	kvt_gpu_walk_init(&r->walk, p, move);
}

bool kvt_gpu_runs_next(struct kvt_gpu_runs *r, struct kvt_gpu_run *out)
{
	struct kvt_gpu_run *held = &r->held;

	for (;;) {
		struct kvt_gpu_run run;

		if (r->next == r->strip.runs) {
			r->next = 0;
			if (!kvt_gpu_walk_next(&r->walk, &r->strip)) {
				r->strip.runs = 0;
				break;
			}
		}
		run = (struct kvt_gpu_run){r->strip.paged + r->next * r->strip.stride,
			r->strip.offset + (uint64_t)r->next * r->strip.run, r->strip.run};
		r->next++;
		if (held->bytes > 0 && run.paged == held->paged + held->bytes &&
			run.offset == held->offset + held->bytes) {
			held->bytes += run.bytes;
		} else if (held->bytes > 0) {
			*out = *held;
			*held = run;
			return true;
		} else {
			*held = run;
		}
	}
	if (held->bytes == 0)
		return false;
	*out = *held;
	held->bytes = 0;
	return true;
}
