/*
 * layout.h - an engine's layout as the numbers that index.h computes with, and copies as walks over it.
 */
#ifndef KVT_GPU_LAYOUT_H
#define KVT_GPU_LAYOUT_H

#include <stdbool.h>

#include "gpu/index.h"
#include "kvtier/kvtier_cuda.h"

/* A paged cache. */
struct kvt_gpu_paged {
	struct kvt_gpu_shape shape;
	uint64_t block_count;
	uint64_t *layers; /* shape.layers addresses, owned */
};

/* KVT_EINVAL: not a layout, or one that cannot be shown to be free of overlaps; KVT_ENOMEM. */
enum kvt_status kvt_gpu_paged_init(
	struct kvt_gpu_paged *p, const struct kvt_gpu_layout *layout) KVT_MUST_CHECK;
void kvt_gpu_paged_finish(struct kvt_gpu_paged *p);

/* Bytes of a chunk of so many blocks; 0: too many, or none. */
uint64_t kvt_gpu_paged_chunk(const struct kvt_gpu_paged *p, uint64_t blocks);

/* Largest of 16, 8, 4, 2 and 1 that divides all that was or-ed together. */
uint32_t kvt_gpu_unit_of(uint64_t bits);

struct kvt_gpu_divisor kvt_gpu_divisor_of(uint32_t by);

/* A job that was checked, with its arrays behind it in one allocation; ids are below block_count. */
struct kvt_gpu_move {
	bool scatter;
	uint32_t order;
	void *after;
	uint32_t blocks, first, whole; /* as in struct kvt_gpu_launch */
	uint64_t bytes;                /* that are copied */
	const uint32_t *ids;
	struct kvt_segment *segments; /* none is empty; cut to the chunk's bytes */
	size_t segment_count;
};

/* Caller frees *out with free(). KVT_EINVAL, KVT_ENOMEM. */
enum kvt_status kvt_gpu_move_make(const struct kvt_gpu_paged *p, const struct kvt_gpu_job *job,
	bool scatter, struct kvt_gpu_move **out) KVT_MUST_CHECK;

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
