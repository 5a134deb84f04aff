/*
 * layout.h - an engine's layout as the numbers that index.h computes with, and copies as walks over it.
 */
#ifndef KVT_GPU_LAYOUT_H
#define KVT_GPU_LAYOUT_H

#include <stdbool.h>

#include "gpu/turn.h"
#include "kvtier/kvtier_cuda.h"

/* A paged cache. */
struct kvt_gpu_paged {
	struct kvt_gpu_shape shape;
	uint64_t id_count; /* ids are below it */
	uint32_t row;      /* bytes of the last axis in a chunk: the values of a head, where it is that */
	uint32_t element;  /* bytes */
	uint64_t *layers; /* shape.layers addresses, owned */
};

/* Equal parts of a block, each with an id of its own: part i is part i % count of block i / count. The axes of the
 * layout are then a part's. */
struct kvt_gpu_parts {
	uint64_t count;
	int64_t stride; /* bytes from one to the next, > 0 unless there is one */
};

/* parts NULL: an id is a block's. KVT_EINVAL: not a layout, or one that cannot be shown to be free of overlaps;
 * KVT_ENOMEM. */
enum kvt_status kvt_gpu_paged_init(struct kvt_gpu_paged *p, const struct kvt_gpu_layout *layout,
	const struct kvt_gpu_parts *parts) KVT_MUST_CHECK;
void kvt_gpu_paged_finish(struct kvt_gpu_paged *p);

/* Bytes of a chunk of so many blocks; 0: too many, or none. */
uint64_t kvt_gpu_paged_chunk(const struct kvt_gpu_paged *p, uint64_t blocks);

/* Largest of 16, 8, 4, 2 and 1 that divides all that was or-ed together. */
uint32_t kvt_gpu_unit_of(uint64_t bits);

struct kvt_gpu_divisor kvt_gpu_divisor_of(uint32_t by);

/* How keys turn (turn.h), for a layout whose last axis is the values of a head. */
struct kvt_gpu_turn {
	uint32_t values;     /* KVT_GPU_F32, ...: as many bytes as the layout's elements */
	uint32_t first_value; /* of each head: those before it have no position */
	uint32_t pairs;      /* the 2 * pairs values from there on are turned; > 0 */
	uint32_t neighbours; /* 0: pairs are i and i + pairs; else 2 i and 2 i + 1; from first_value on */
	uint32_t first_layer, layer_step; /* that layer and each layer_step-th (> 0) behind it have keys */
	const float *cosine, *sine;       /* [pairs] */
};

/* A job that was checked, with its arrays behind it in one allocation; ids are below id_count. */
struct kvt_gpu_move {
	const struct kvt_gpu_paged *paged; /* that it was made for */
	uint32_t view;                     /* its number (gpu.h); 0: the engine's own */
	const struct kvt_gpu_turn *turn;   /* of a scatter: once all is copied; NULL: none */
	bool scatter;
	uint32_t order;
	void *after;
	uint32_t blocks, first, whole; /* as in struct kvt_gpu_launch */
	uint64_t bytes;                /* that are copied */
	const uint32_t *ids;
	struct kvt_segment *segments; /* none is empty; cut to the chunk's bytes */
	size_t segment_count;
};

/* turn: NULL or, for a scatter, a turn. Caller frees *out with free(). KVT_EINVAL, KVT_ENOMEM. */
enum kvt_status kvt_gpu_move_make(const struct kvt_gpu_paged *p, const struct kvt_gpu_job *job,
	bool scatter, const struct kvt_gpu_turn *turn, struct kvt_gpu_move **out) KVT_MUST_CHECK;

/* Launches that turn all keys of a move, one after another. */
struct kvt_gpu_turnings {
	const struct kvt_gpu_move *move;
	uint64_t layers; /* address of the layers' addresses, where the launch reads them */
	uint32_t block, pair;
};
void kvt_gpu_turnings_init(struct kvt_gpu_turnings *t, const struct kvt_gpu_move *move, uint64_t layers);
bool kvt_gpu_turnings_next(struct kvt_gpu_turnings *t, struct kvt_gpu_turning *out); /* false: that was all */

/* Bytes of the job (index.h: j) that lie before an offset of the chunk. */
uint32_t kvt_gpu_move_before(
	const struct kvt_gpu_paged *p, const struct kvt_gpu_move *move, uint64_t offset);

/* Contiguous runs at equal distances in the paged cache, one after another in the chunk. */
struct kvt_gpu_strip {
	uint64_t paged;  /* address of the first run */
	uint64_t stride; /* from run to run */
	uint64_t offset; /* of the first run in the chunk */
	uint32_t runs;
	uint32_t run;    /* bytes */
};

/* All strips of a job, in ascending order of the chunk's offsets. */
struct kvt_gpu_walk {
	const struct kvt_gpu_paged *paged;
	const struct kvt_gpu_move *move;
	uint32_t layer, block;
	uint32_t index[KVT_GPU_MOST_AXES]; /* of all axes but the last, which a strip runs along */
	uint32_t in;                       /* bytes of the block that are done */
};

void kvt_gpu_walk_init(struct kvt_gpu_walk *w, const struct kvt_gpu_paged *p,
	const struct kvt_gpu_move *move);
bool kvt_gpu_walk_next(struct kvt_gpu_walk *w, struct kvt_gpu_strip *out); /* false: that was all */

/* A piece of memory that is contiguous on both sides. */
struct kvt_gpu_run {
	uint64_t paged;  /* address */
	uint64_t offset; /* in the chunk */
	uint64_t bytes;
};

/* The same as runs, as long as the layout and the numbers of the blocks allow. */
struct kvt_gpu_runs {
	struct kvt_gpu_walk walk;
	struct kvt_gpu_strip strip;
	uint32_t next;           /* run of the strip */
	struct kvt_gpu_run held; /* may still grow; bytes 0: none */
};

void kvt_gpu_runs_init(struct kvt_gpu_runs *r, const struct kvt_gpu_paged *p,
	const struct kvt_gpu_move *move);
bool kvt_gpu_runs_next(struct kvt_gpu_runs *r, struct kvt_gpu_run *out); /* false: that was all */

#endif
