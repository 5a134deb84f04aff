/*
 * layout.h - converts an engine's layout into the numbers of index.h, and walks over it for copies.
 */
#ifndef KVT_GPU_LAYOUT_H
#define KVT_GPU_LAYOUT_H

#include <stdbool.h>

#include "gpu/turn.h"
#include "kvtier/kvtier_cuda.h"

/* A paged cache. */
struct kvt_gpu_paged {
	struct kvt_gpu_shape shape;
	uint64_t id_count; /* all ids are below this number */
	/* bytes of the last axis in a chunk; if that axis is the values of a head, those of a
	 * head */
	uint32_t row;
	uint32_t element;  /* bytes */
	uint64_t *layers; /* shape.layers addresses, owned */
};

/* Divides blocks into equal parts, each with its own id: id i is part i % count of block i / count.
 * The axes of the layout are then those of a part. */
struct kvt_gpu_parts {
	uint64_t count;
	int64_t stride; /* distance from one part to the next; above 0 unless there is only one */
};

/* parts NULL: ids are those of whole blocks. KVT_EINVAL: the layout is invalid, or it cannot be
 * proven that its elements do not overlap; KVT_ENOMEM. */
enum kvt_status kvt_gpu_paged_init(struct kvt_gpu_paged *p, const struct kvt_gpu_layout *layout,
	const struct kvt_gpu_parts *parts) KVT_MUST_CHECK;
void kvt_gpu_paged_finish(struct kvt_gpu_paged *p);

/* Returns the bytes of a chunk of that many blocks; 0: there are none, or too many. */
uint64_t kvt_gpu_paged_chunk(const struct kvt_gpu_paged *p, uint64_t blocks);

/* Returns the largest of 16, 8, 4, 2 and 1 that divides all numbers that were or-ed into `bits`. */
uint32_t kvt_gpu_unit_of(uint64_t bits);

struct kvt_gpu_divisor kvt_gpu_divisor_of(uint32_t by);

/* How keys are turned (turn.h), for a layout whose last axis is the values of a head. */
struct kvt_gpu_turn {
	uint32_t values; /* KVT_GPU_F32, ...: a type of as many bytes as the layout's elements */
	uint32_t first_value; /* index of the first value in each head that has a position */
	uint32_t pairs;      /* 2 * pairs values from first_value on are turned; above 0 */
	/* from first_value on, 0: pairs are i and i + pairs; else 2 i and 2 i + 1 */
	uint32_t neighbours;
	/* the first layer with keys; after it every layer_step-th has keys, too */
	uint32_t first_layer, layer_step;
	const float *cosine, *sine;       /* [pairs] */
};

/* A checked job. Its arrays follow it in the same allocation. All ids are below id_count. */
struct kvt_gpu_move {
	const struct kvt_gpu_paged *paged; /* the layout that the job uses */
	uint32_t view;                     /* number of that layout (gpu.h); 0: the engine's own */
	/* for a scatter: how keys are turned after the copy; NULL: not at all */
	const struct kvt_gpu_turn *turn;
	bool scatter;
	uint32_t order;
	void *after;
	uint32_t blocks, first, whole; /* meaning as in struct kvt_gpu_launch */
	uint64_t bytes;                /* bytes to copy */
	const uint32_t *ids;
	struct kvt_segment *segments; /* none is empty; together they have the bytes of the chunk */
	size_t segment_count;
};

/* turn: NULL, or for a scatter how keys are turned. The caller frees *out with free(). KVT_EINVAL,
 * KVT_ENOMEM. */
enum kvt_status kvt_gpu_move_make(const struct kvt_gpu_paged *p, const struct kvt_gpu_job *job,
	bool scatter, const struct kvt_gpu_turn *turn, struct kvt_gpu_move **out) KVT_MUST_CHECK;

/* The launches that turn all keys of a move, one after another. */
struct kvt_gpu_turnings {
	const struct kvt_gpu_move *move;
	uint64_t layers; /* address, for the launches, of the layers' addresses */
	uint32_t block, pair;
};
void kvt_gpu_turnings_init(struct kvt_gpu_turnings *t, const struct kvt_gpu_move *move, uint64_t layers);
/* false: no more */
bool kvt_gpu_turnings_next(struct kvt_gpu_turnings *t, struct kvt_gpu_turning *out);

/* Returns how many bytes of the job (numbered j in index.h) are before an offset in the chunk. */
uint32_t kvt_gpu_move_before(
	const struct kvt_gpu_paged *p, const struct kvt_gpu_move *move, uint64_t offset);

/* Contiguous runs that are at equal distances in the paged cache, and follow each other in the
 * chunk. */
struct kvt_gpu_strip {
	uint64_t paged;  /* address of the first run in the paged cache */
	uint64_t stride; /* distance from one run to the next */
	uint64_t offset; /* offset of the first run in the chunk */
	uint32_t runs;
	uint32_t run;    /* bytes */
};

/* A walk over all strips of a job, in the order of the chunk. */
struct kvt_gpu_walk {
	const struct kvt_gpu_paged *paged;
	const struct kvt_gpu_move *move;
	uint32_t layer, block;
	/* indices in all axes but the last one, along which a strip runs */
	uint32_t index[KVT_GPU_MOST_AXES];
	uint32_t in;                       /* bytes of the block that are done */
};

void kvt_gpu_walk_init(struct kvt_gpu_walk *w, const struct kvt_gpu_paged *p,
	const struct kvt_gpu_move *move);
bool kvt_gpu_walk_next(struct kvt_gpu_walk *w, struct kvt_gpu_strip *out); /* false: no more */

/* A piece of memory that is contiguous both in the paged cache and in the chunk. */
struct kvt_gpu_run {
	uint64_t paged;  /* address */
	uint64_t offset; /* in the chunk */
	uint64_t bytes;
};

/* A walk over runs that are as long as the layout and the blocks' numbers allow. */
struct kvt_gpu_runs {
	struct kvt_gpu_walk walk;
	struct kvt_gpu_strip strip;
	uint32_t next;           /* run of the strip */
	struct kvt_gpu_run held; /* a run that the next one may lengthen; bytes 0: none */
};

void kvt_gpu_runs_init(struct kvt_gpu_runs *r, const struct kvt_gpu_paged *p,
	const struct kvt_gpu_move *move);
bool kvt_gpu_runs_next(struct kvt_gpu_runs *r, struct kvt_gpu_run *out); /* false: no more */

#endif
