/*
 * index.h - maps bytes of the paged cache to bytes of a chunk; for the processor and for a device.
 *
 * This header alone decides where a byte goes, by inline functions of C that CUDA compiles, too: the kernel is a loop
 * over kvt_gpu_thread, and tests on a machine without a device run the same function. The rest of the folder only
 * decides which backend copies and when.
 *
 * Numbers of a job. A job copies `blocks` blocks of each layer, out of a chunk of `whole` blocks, from block number
 * `first` on. Its bytes are counted without gaps, layer after layer: byte j of the job is
 *
 * 	layer = j / (blocks * block_bytes), block = ..., byte `in` of the block
 * 	chunk offset = (layer * whole + first + block) * block_bytes + in
 * 	paged address = layers[layer] + kvt_gpu_id_at(id[block]) + kvt_gpu_inside(in)
 *
 * Both grow with j, so that any part of a chunk's bytes is one range of j. All of it fits 32 bits, since a chunk has
 * less than 4 GiB: 64-bit divisions cost a device ten times as much.
 *
 * A block consists of runs, the longest pieces that are contiguous on both sides (layout.c merges axes), and axes
 * around them. Most of the counts are powers of two in practice: those divide by a shift.
 */
#ifndef KVT_GPU_INDEX_H
#define KVT_GPU_INDEX_H

#include <stdint.h>

#ifdef __CUDACC__
#define KVT_GPU_BOTH static __host__ __device__ __forceinline__
#else
#include <string.h>
#define KVT_GPU_BOTH static inline
#endif

#define KVT_GPU_MOST_AXES  6
#define KVT_GPU_NO_SHIFT   32u
/* most ids of blocks in one launch, so that its arguments fit the 4 KiB that all devices allow */
#define KVT_GPU_LIST       512u

/* A divisor. */
struct kvt_gpu_divisor {
	uint32_t by;
	uint32_t shift; /* KVT_GPU_NO_SHIFT: the divisor is no power of two */
};

KVT_GPU_BOTH uint32_t kvt_gpu_divide(uint32_t n, struct kvt_gpu_divisor d)
{
	return d.shift < KVT_GPU_NO_SHIFT ? n >> d.shift : n / d.by;
}

/* How the bytes of one block of one layer are arranged. */
struct kvt_gpu_shape {
	uint64_t block_stride;
	uint64_t part_stride;
	/* number of parts of a block; 1: ids are those of whole blocks */
	struct kvt_gpu_divisor parts;
	uint32_t layers;
	uint32_t unit; /* 16, 8, 4, 2 or 1: divides run, strides and addresses in the paged cache */
	uint32_t outer; /* number of axes around the runs, outermost first */
	uint32_t reserved;
	struct kvt_gpu_divisor block;  /* bytes */
	struct kvt_gpu_divisor run;    /* bytes */
	struct kvt_gpu_divisor counts[KVT_GPU_MOST_AXES];
	uint64_t strides[KVT_GPU_MOST_AXES];
};

/* Returns where the part with this id begins, from the layer's beginning. Ids of parts count
 * through all blocks. With a part for each token, for example, one token can be copied without the
 * others in its block. */
KVT_GPU_BOTH uint64_t kvt_gpu_id_at(const struct kvt_gpu_shape *shape, uint32_t id)
{
	uint32_t block = kvt_gpu_divide(id, shape->parts);

	return block * shape->block_stride + (id - block * shape->parts.by) * shape->part_stride;
}

/* Returns the offset in the block of byte `in`, which is counted in the chunk's order. */
KVT_GPU_BOTH uint64_t kvt_gpu_inside(const struct kvt_gpu_shape *shape, uint32_t in)
{
	uint32_t run = kvt_gpu_divide(in, shape->run);
	uint64_t at = in - run * shape->run.by;

	for (uint32_t axis = shape->outer; axis-- > 0;) {
		uint32_t next = kvt_gpu_divide(run, shape->counts[axis]);

		at += (run - next * shape->counts[axis].by) * shape->strides[axis];
		run = next;
	}
	return at;
}

/* One launch of the kernel: copies bytes [from, from + units * unit) of a job between the paged
 * cache and memory in which the chunk's first byte would be at `flat`. */
struct kvt_gpu_launch {
	struct kvt_gpu_shape shape;
	uint64_t layers;   /* address, in the device's memory, of the layers' addresses */
	/* may be before the memory that exists, because only offsets in the range are used */
	uint64_t flat;
	uint32_t from;     /* multiple of unit */
	uint32_t units;
	uint32_t unit;     /* number of bytes that are copied at once, at most shape.unit */
	uint32_t scatter;  /* 0: from the paged cache */
	uint32_t whole, first; /* number of blocks of the chunk; number in it of the first block */
	struct kvt_gpu_divisor blocks;   /* bytes that the job's blocks have in one layer */
	uint32_t ids[KVT_GPU_LIST];
};

/* Both addresses of a unit. */
struct kvt_gpu_pair {
	uint64_t paged, flat;
};

KVT_GPU_BOTH struct kvt_gpu_pair kvt_gpu_place(const struct kvt_gpu_launch *l, uint32_t unit)
{
	const uint64_t *layers = (const uint64_t *)(uintptr_t)l->layers;
	uint32_t at = l->from + unit * l->unit;
	uint32_t layer = kvt_gpu_divide(at, l->blocks);
	uint32_t rest = at - layer * l->blocks.by;
	uint32_t block = kvt_gpu_divide(rest, l->shape.block);
	uint32_t in = rest - block * l->shape.block.by;
	struct kvt_gpu_pair pair;

	pair.paged = layers[layer] + kvt_gpu_id_at(&l->shape, l->ids[block]) +
		kvt_gpu_inside(&l->shape, in);
	pair.flat = l->flat + (uint64_t)(layer * l->whole + l->first + block) * l->shape.block.by + in;
	return pair;
}

/*
 * Units are copied four at a time. All four are loaded before the first is stored, so that a device
 * has several loads under way on its bus. Neighbouring threads have neighbouring units. No byte is
 * used again soon; the loads and stores pass that to the cache (.cs).
 */
#define KVT_GPU_AT_ONCE 4u
#ifdef __CUDA_ARCH__
#define KVT_GPU_UNROLL                  _Pragma("unroll")
#define KVT_GPU_LOAD(type, value, at)   (value) = __ldcs((const type *)(at))
#define KVT_GPU_STORE(type, at, value)  __stcs((type *)(at), value)
#define KVT_GPU_WORDS(with)             with(16, uint4) with(8, uint2) with(4, unsigned int) \
	with(2, unsigned short) with(1, unsigned char)
#else
#define KVT_GPU_UNROLL
struct kvt_gpu_16 {
	uint64_t low, high;
};
#define KVT_GPU_LOAD(type, value, at)   memcpy(&(value), (const void *)(uintptr_t)(at), sizeof(value))
#define KVT_GPU_STORE(type, at, value)  memcpy((void *)(uintptr_t)(at), &(value), sizeof(value))
#define KVT_GPU_WORDS(with)             with(16, struct kvt_gpu_16) with(8, uint64_t) with(4, uint32_t) \
	with(2, uint16_t) with(1, uint8_t)
#endif

#define KVT_GPU_MOVER(bytes, type) \
	KVT_GPU_BOTH void kvt_gpu_move_##bytes( \
		const struct kvt_gpu_launch *l, uint32_t thread, uint32_t threads) \
	{ \
		for (uint64_t at = thread; at < l->units; at += (uint64_t)threads * KVT_GPU_AT_ONCE) { \
			type value[KVT_GPU_AT_ONCE]; \
			uint64_t to[KVT_GPU_AT_ONCE]; \
			KVT_GPU_UNROLL \
			for (uint32_t i = 0; i < KVT_GPU_AT_ONCE; i++) { \
				uint64_t unit = at + (uint64_t)i * threads; \
				if (unit < l->units) { \
					struct kvt_gpu_pair p = kvt_gpu_place(l, (uint32_t)unit); \
					to[i] = l->scatter ? p.paged : p.flat; \
					KVT_GPU_LOAD(type, value[i], l->scatter ? p.flat : p.paged); \
				} \
			} \
			KVT_GPU_UNROLL \
			for (uint32_t i = 0; i < KVT_GPU_AT_ONCE; i++) \
				if (at + (uint64_t)i * threads < l->units) \
					KVT_GPU_STORE(type, to[i], value[i]); \
		} \
	}
KVT_GPU_WORDS(KVT_GPU_MOVER)

/* Copies the units of thread number `thread` of `threads`. */
KVT_GPU_BOTH void kvt_gpu_thread(const struct kvt_gpu_launch *l, uint32_t thread, uint32_t threads)
{
	switch (l->unit) {
	case 16:
		kvt_gpu_move_16(l, thread, threads);
		break;
	case 8:
		kvt_gpu_move_8(l, thread, threads);
		break;
	case 4:
		kvt_gpu_move_4(l, thread, threads);
		break;
	case 2:
		kvt_gpu_move_2(l, thread, threads);
		break;
	default:
		kvt_gpu_move_1(l, thread, threads);
		break;
	}
}

#endif
