/*
 * layout.c - checks a layout and splits it into axes and runs.
 *
 * An axis of one element is dropped, and two neighbouring axes are one axis if the outer stride is
 * the inner extent: as few axes as possible remain around the innermost contiguous run. A block
 * that the engine has in the chunk's order is one run.
 *
 * Elements that overlap in memory would make a scatter's result depend on its order. The check
 * takes strides in ascending order: each must reach past everything that the smaller ones span. The
 * check refuses some layouts without overlaps which no engine has, and accepts every permutation of
 * axes with padding.
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

/* Returns whether no two elements of a layer share a byte, and a layer fits into an address
 * space. */
static bool apart(const struct kvt_gpu_layout *layout, const struct kvt_gpu_parts *parts)
{
	struct kvt_gpu_axis axes[KVT_GPU_AXES + 2];
	uint64_t extent = layout->element_bytes, reach;
	size_t n = 0;

	for (uint32_t i = 0; i < layout->axis_count; i++)
		if (layout->axes[i].count > 1)
			axes[n++] = layout->axes[i];
	if (parts->count > 1)
		axes[n++] = (struct kvt_gpu_axis){parts->count, parts->stride};
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

static bool sensible(const struct kvt_gpu_layout *layout, const struct kvt_gpu_parts *parts)
{
	uint64_t bytes = layout->element_bytes;

	if (layout->size < sizeof(*layout) || layout->axis_count == 0 ||
		layout->axis_count > KVT_GPU_AXES || layout->layer_count == 0 ||
		layout->layer_count > MOST_LAYERS || layout->layers == NULL)
		return false;
	if (bytes == 0 || bytes > 8 || (bytes & (bytes - 1)) != 0)
		return false;
	if (layout->block_count == 0 || parts->count == 0 || parts->count > UINT32_MAX ||
		layout->block_count > UINT32_MAX / parts->count)
		return false;
	for (uint32_t i = 0; i < layout->axis_count; i++)
		if (layout->axes[i].count == 0 ||
			__builtin_mul_overflow(bytes, layout->axes[i].count, &bytes) ||
			bytes > UINT32_MAX)
			return false;
	for (uint32_t i = 0; i < layout->layer_count; i++)
		if (layout->layers[i] == NULL)
			return false;
	return apart(layout, parts);
}

/* Copies a block's axes, leaves out axes of count 1, and merges neighbours that are contiguous.
 * Returns the number of axes. */
static uint32_t merge_axes(const struct kvt_gpu_layout *layout, struct kvt_gpu_axis *out)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < layout->axis_count; i++) {
		const struct kvt_gpu_axis *axis = &layout->axes[i];

		if (axis->count == 1)
			continue;
		/* cannot overflow: bounded by the extents that apart() has added up */
		if (n > 0 && (uint64_t)out[n - 1].stride == (uint64_t)axis->stride * axis->count) {
			out[n - 1].count *= axis->count;
			out[n - 1].stride = axis->stride;
		} else {
			out[n++] = *axis;
		}
	}
	return n;
}

static void make_shape(const struct kvt_gpu_layout *layout, const struct kvt_gpu_parts *parts,
	struct kvt_gpu_shape *shape)
{
	struct kvt_gpu_axis axes[KVT_GPU_AXES];
	uint32_t n = merge_axes(layout, axes), run = layout->element_bytes, block;
	uint64_t bits;

	*shape = (struct kvt_gpu_shape){
		.layers = layout->layer_count, .parts = kvt_gpu_divisor_of((uint32_t)parts->count)};
	if (layout->block_count > 1)
		shape->block_stride = (uint64_t)layout->block_stride;
	if (parts->count > 1)
		shape->part_stride = (uint64_t)parts->stride;
	if (n > 0 && axes[n - 1].stride == (int64_t)layout->element_bytes)
		run *= (uint32_t)axes[--n].count;
	bits = run | shape->block_stride | shape->part_stride;
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

enum kvt_status kvt_gpu_paged_init(struct kvt_gpu_paged *p, const struct kvt_gpu_layout *layout,
	const struct kvt_gpu_parts *parts)
{
	static const struct kvt_gpu_parts none = {1, 0};
	uint64_t *layers;

	if (parts == NULL)
		parts = &none;
	if (!sensible(layout, parts))
		return KVT_EINVAL;
	layers = calloc(layout->layer_count, sizeof(*layers));
	if (layers == NULL)
		return KVT_ENOMEM;
	for (uint32_t i = 0; i < layout->layer_count; i++)
		layers[i] = (uint64_t)(uintptr_t)layout->layers[i];
	make_shape(layout, parts, &p->shape);
	p->id_count = layout->block_count * parts->count;
	p->element = layout->element_bytes;
	p->row = (uint32_t)layout->axes[layout->axis_count - 1].count * layout->element_bytes;
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

/* Copies the segments, cut to `bytes`. Returns false if they have fewer bytes. */
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

/* Returns whether this turn fits the rows of this layout. */
static bool turns(const struct kvt_gpu_paged *p, const struct kvt_gpu_turn *turn, bool scatter)
{
	uint32_t bytes = turn->values == KVT_GPU_F32 ? 4 : 2;

	return scatter && turn->values <= KVT_GPU_F16 && bytes == p->element && turn->pairs > 0 &&
		turn->first_value <= p->row / bytes && turn->pairs <= (p->row / bytes - turn->first_value) / 2 && turn->first_layer < p->shape.layers &&
		turn->layer_step > 0 && turn->cosine != NULL && turn->sine != NULL;
}

/* Copies a turn and its table into `memory`, which has room for both. */
static const struct kvt_gpu_turn *keep_turn(void *memory, const struct kvt_gpu_turn *turn)
{
	struct kvt_gpu_turn *kept = memory;
	float *numbers = (float *)(kept + 1);

	memcpy(numbers, turn->cosine, turn->pairs * sizeof(*numbers));
	memcpy(numbers + turn->pairs, turn->sine, turn->pairs * sizeof(*numbers));
	*kept = *turn;
	kept->cosine = numbers;
	kept->sine = numbers + turn->pairs;
	return kept;
}

enum kvt_status kvt_gpu_move_make(const struct kvt_gpu_paged *p, const struct kvt_gpu_job *job,
	bool scatter, const struct kvt_gpu_turn *turn, struct kvt_gpu_move **out)
{
	uint64_t chunk = kvt_gpu_paged_chunk(p, job->count), turn_bytes = 0;
	struct kvt_gpu_move *move;
	uint32_t *ids;

	if (turn != NULL && !turns(p, turn, scatter))
		return KVT_EINVAL;
	if (turn != NULL)
		turn_bytes = sizeof(*turn) + turn->pairs * 2 * sizeof(*turn->cosine);
	if (chunk == 0 || job->block_count == 0 || job->block_count > job->count ||
		job->first > job->count - job->block_count || job->blocks == NULL ||
		job->segments == NULL || job->segment_count > chunk ||
		job->order > KVT_GPU_AFTER_STREAM)
		return KVT_EINVAL;
	if (job->order == KVT_GPU_AFTER_EVENT && job->after == NULL)
		return KVT_EINVAL;
	for (size_t i = 0; i < job->block_count; i++)
		if (job->blocks[i] < 0 || (uint64_t)job->blocks[i] >= p->id_count)
			return KVT_EINVAL;
	/* segments and turn come first, because they need the greater alignment */
	move = malloc(sizeof(*move) + job->segment_count * sizeof(*move->segments) + turn_bytes +
		job->block_count * sizeof(*ids));
	if (move == NULL)
		return KVT_ENOMEM;
	move->segments = (struct kvt_segment *)(move + 1);
	ids = (uint32_t *)((char *)(move->segments + job->segment_count) + turn_bytes);
	move->turn = turn != NULL ? keep_turn(move->segments + job->segment_count, turn) : NULL;
	move->paged = p;
	move->view = 0;
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

/* Moves the walk past a strip of `bytes`. */
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
	out->paged = w->paged->layers[w->layer] + kvt_gpu_id_at(shape, move->ids[w->block]);
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

void kvt_gpu_turnings_init(struct kvt_gpu_turnings *t, const struct kvt_gpu_move *move, uint64_t layers)
{
	*t = (struct kvt_gpu_turnings){move, layers, 0, 0};
}

static uint32_t less(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

bool kvt_gpu_turnings_next(struct kvt_gpu_turnings *t, struct kvt_gpu_turning *out)
{
	const struct kvt_gpu_move *move = t->move;
	const struct kvt_gpu_paged *p = move->paged;
	const struct kvt_gpu_turn *turn = move->turn;
	uint32_t blocks = less(move->blocks - t->block, KVT_GPU_LIST);
	uint32_t pairs, rows = p->shape.block.by / p->row;
	uint32_t layers;

	if (turn == NULL || t->block == move->blocks)
		return false;
	pairs = less(turn->pairs - t->pair, KVT_GPU_PAIRS);
	layers = (p->shape.layers - turn->first_layer - 1) / turn->layer_step + 1;
	out->shape = p->shape;
	out->layers = t->layers;
	out->first_layer = turn->first_layer;
	out->layer_step = turn->layer_step;
	/* cannot overflow: a chunk has less than 2^32 bytes */
	out->count = pairs * rows * blocks * layers;
	out->values = turn->values;
	out->row_bytes = p->row;
	out->first_value = turn->first_value;
	out->first_pair = t->pair;
	out->all_pairs = turn->pairs;
	out->neighbours = turn->neighbours;
	out->pairs = kvt_gpu_divisor_of(pairs);
	out->rows = kvt_gpu_divisor_of(rows);
	out->blocks = kvt_gpu_divisor_of(blocks);
	memcpy(out->ids, move->ids + t->block, blocks * sizeof(out->ids[0]));
	memcpy(out->angles.cosine, turn->cosine + t->pair, pairs * sizeof(float));
	memcpy(out->angles.sine, turn->sine + t->pair, pairs * sizeof(float));
	t->pair += pairs;
	if (t->pair == turn->pairs) {
		t->pair = 0;
		t->block += blocks;
	}
	return true;
}
