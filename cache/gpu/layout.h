/*
 * layout.h - an engine's layout in the numbers of index.h, and walks over it for copies.
 */
#ifndef KVT_GPU_LAYOUT_H
#define KVT_GPU_LAYOUT_H

#include <stdbool.h>

#include "gpu/turn.h"
#include "kvtier/kvtier_cuda.h"

/* A paged cache. */
struct kvt_gpu_paged {
	struct kvt_gpu_shape shape;
	uint64_t id_count; /* every id is below this number */
	uint32_t row;      /* bytes of the last axis in a chunk: the values of a head, if that is the last axis */
	uint32_t element;  /* bytes */
	uint64_t *layers; /* shape.layers addresses, owned */
};

/* Equal parts of a block, each with an id of its own: part i is part i % count of block i / count. The axes of the
 * layout are then a part's. */
struct kvt_gpu_parts {
	uint64_t count;
	int64_t stride; /* distance from one part to the next, > 0 unless there is only one */
};

/* parts NULL: an id is a block's. KVT_EINVAL: not a layout, or one not provably free of overlaps; KVT_ENOMEM. */
enum kvt_status kvt_gpu_paged_init(struct kvt_gpu_paged *p, const struct kvt_gpu_layout *layout,
	const struct kvt_gpu_parts *parts) KVT_MUST_CHECK;
void kvt_gpu_paged_finish(struct kvt_gpu_paged *p);

/* Bytes of a chunk of that many blocks; 0: too many, or none. */
uint64_t kvt_gpu_paged_chunk(const struct kvt_gpu_paged *p, uint64_t blocks);

/* Largest of 16, 8, 4, 2 and 1 that divides all numbers or-ed into `bits`. */
uint32_t kvt_gpu_unit_of(uint64_t bits);

struct kvt_gpu_divisor kvt_gpu_divisor_of(uint32_t by);

/* The rotation of keys (turn.h), for a layout whose last axis is the values of a head. */
struct kvt_gpu_turn {
	uint32_t values;     /* KVT_GPU_F32, ...: as many bytes as the layout's elements */
	uint32_t first_value; /* first value of each head that has a position */
	uint32_t pairs;      /* the 2 * pairs values from first_value on are turned; > 0 */
	uint32_t neighbours; /* 0: pairs are i and i + pairs; else 2 i and 2 i + 1; from first_value on */
	uint32_t first_layer, layer_step; /* first layer with keys; every layer_step-th (> 0) after it has keys, too */
	const float *cosine, *sine;       /* [pairs] */
};

/* A checked job, with its arrays after it in one allocation; ids are below id_count. */
struct kvt_gpu_move {
	const struct kvt_gpu_paged *paged; /* the layout of the job */
	uint32_t view;                     /* the layout's number (gpu.h); 0: the engine's own */
	const struct kvt_gpu_turn *turn;   /* of a scatter: after the copy; NULL: none */
	bool scatter;
	uint32_t order;
	void *after;
	uint32_t blocks, first, whole; /* as in struct kvt_gpu_launch */
	uint64_t bytes;                /* bytes to copy */
	const uint32_t *ids;
	struct kvt_segment *segments; /* none is empty; cut to the chunk's bytes */
	size_t segment_count;
};

/* turn: NULL or, for a scatter, a turn. The caller frees *out with free(). KVT_EINVAL, KVT_ENOMEM. */
enum kvt_status kvt_gpu_move_make(const struct kvt_gpu_paged *p, const struct kvt_gpu_job *job,
	bool scatter, const struct kvt_gpu_turn *turn, struct kvt_gpu_move **out) KVT_MUST_CHECK;

/* Launches that turn all keys of a move, one after another. */
struct kvt_gpu_turnings {
	const struct kvt_gpu_move *move;
	uint64_t layers; /* address of the layers' addresses, for the launch */
	uint32_t block, pair;
};
void kvt_gpu_turnings_init(struct kvt_gpu_turnings *t, const struct kvt_gpu_move *move, uint64_t layers);
bool kvt_gpu_turnings_next(struct kvt_gpu_turnings *t, struct kvt_gpu_turning *out); /* false: no more */

/* Number of bytes of the job (index.h: j) that lie before an offset of the chunk. */
uint32_t kvt_gpu_move_before(
	const struct kvt_gpu_paged *p, const struct kvt_gpu_move *move, uint64_t offset);

/* Contiguous runs at equal distances in the paged cache, consecutive in the chunk. */
struct kvt_gpu_strip {
	uint64_t paged;  /* address of the first run */
	uint64_t stride; /* distance from run to run */
	uint64_t offset; /* offset of the first run in the chunk */
	uint32_t runs;
	uint32_t run;    /* bytes */
};

/* All strips of a job, in ascending order of the chunk's offsets. */
struct kvt_gpu_walk {
	const struct kvt_gpu_paged *paged;
	const struct kvt_gpu_move *move;
	uint32_t layer, block;
	uint32_t index[KVT_GPU_MOST_AXES]; /* indices of all axes but the last, along which a strip runs */
	uint32_t in;                       /* finished bytes of the block */
};

void kvt_gpu_walk_init(struct kvt_gpu_walk *w, const struct kvt_gpu_paged *p,
	const struct kvt_gpu_move *move);
bool kvt_gpu_walk_next(struct kvt_gpu_walk *w, struct kvt_gpu_strip *out); /* false: no more */

/* A piece of memory that is contiguous on both sides. */
struct kvt_gpu_run {
	uint64_t paged;  /* address */
	uint64_t offset; /* in the chunk */
	uint64_t bytes;
};

/* A walk over runs, as long as the layout and the numbers of the blocks allow. */
struct kvt_gpu_runs {
	struct kvt_gpu_walk walk;
	struct kvt_gpu_strip strip;
	uint32_t next;           /* run of the strip */
	struct kvt_gpu_run held; /* run that may still grow; bytes 0: none */
};

void kvt_gpu_runs_init(struct kvt_gpu_runs *r, const struct kvt_gpu_paged *p,
	const struct kvt_gpu_move *move);
bool kvt_gpu_runs_next(struct kvt_gpu_runs *r, struct kvt_gpu_run *out); /* false: no more */

#endif
