/*
 * turn.h - turns keys in the paged cache to other positions; for the processor and for a device.
 *
 * A scatter that moves a fragment's keys to other positions (fragments/rope.h) copies them
 * unchanged, and then turns them in place: the device's own memory costs little against the bus. As
 * in index.h the kernel is a loop over one function, which runs without a device, too: in the
 * backend for this machine's memory and in tests.
 *
 * The last axis of the layout is the values of a head; a row is one run along that axis. In each
 * row 2 * n values from a first one on (number 0, except in latent keys) are n pairs: i and i + n,
 * or 2 i and 2 i + 1. Pair i becomes
 *
 * (a cosine[i] - b sine[i], b cosine[i] + a sine[i])
 *
 * in single precision, without fused steps, like in kvt_rope_move_portable. Only these values are
 * touched, each of them by one thread only.
 */
#ifndef KVT_GPU_TURN_H
#define KVT_GPU_TURN_H

#include "fragments/number.h"
#include "gpu/index.h"

/* most pairs in one launch, so that with the ids they fit the 4 KiB that all devices allow */
#define KVT_GPU_PAIRS 128u

/* Types of values, with the numbers of enum kvt_fragment_values. */
#define KVT_GPU_F32  0u
#define KVT_GPU_BF16 1u
#define KVT_GPU_F16  2u

/* The angles by which the pairs of a launch turn, from first_pair on. */
struct kvt_gpu_angles {
	float cosine[KVT_GPU_PAIRS], sine[KVT_GPU_PAIRS];
};

/* One launch: turns pairs [first_pair, first_pair + pairs.by) of all rows of a job's blocks, in
 * some layers. */
struct kvt_gpu_turning {
	struct kvt_gpu_shape shape;
	uint64_t layers;      /* address, in the device's memory, of the layers' addresses */
	uint32_t first_layer; /* keys are in this layer, and in every layer_step-th after it */
	uint32_t layer_step;
	uint32_t count;       /* number of pairs in all rows, blocks and layers */
	uint32_t values;      /* KVT_GPU_F32, ... */
	uint32_t row_bytes;   /* bytes that all values of a head have */
	uint32_t first_value; /* index of the first value of a row that is turned */
	uint32_t first_pair;
	uint32_t all_pairs;   /* n */
	uint32_t neighbours;  /* 0: i and i + n; else 2 i and 2 i + 1 */
	/* numbers of pairs in the launch, of rows in a block, of blocks in the launch */
	struct kvt_gpu_divisor pairs, rows, blocks;
	uint32_t ids[KVT_GPU_LIST];
	struct kvt_gpu_angles angles;
};

/* Addresses of the two values of a pair, and the number of the pair in the launch. */
struct kvt_gpu_two {
	uint64_t a, b;
	uint32_t pair;
};

KVT_GPU_BOTH struct kvt_gpu_two kvt_gpu_two_at(const struct kvt_gpu_turning *t, uint32_t at)
{
	const uint64_t *layers = (const uint64_t *)(uintptr_t)t->layers;
	uint32_t row = kvt_gpu_divide(at, t->pairs), pair = at - row * t->pairs.by;
	uint32_t block = kvt_gpu_divide(row, t->rows), layer = kvt_gpu_divide(block, t->blocks);
	uint32_t i = t->first_pair + pair, bytes = t->values == KVT_GPU_F32 ? 4 : 2;
	uint32_t in = (row - block * t->rows.by) * t->row_bytes;
	uint32_t one = t->first_value + (t->neighbours ? 2 * i : i), other = one + (t->neighbours ? 1 : t->all_pairs);
	uint64_t base = layers[t->first_layer + layer * t->layer_step] +
		kvt_gpu_id_at(&t->shape, t->ids[block - layer * t->blocks.by]);
	struct kvt_gpu_two two;

	two.a = base + kvt_gpu_inside(&t->shape, in + one * bytes);
	two.b = base + kvt_gpu_inside(&t->shape, in + other * bytes);
	two.pair = pair;
	return two;
}

/* Compute a b - c d and a b + c d with each product rounded. A compiler must not fuse the steps. */
#ifdef __CUDA_ARCH__
#define KVT_GPU_LESS(a, b, c, d) __fsub_rn(__fmul_rn(a, b), __fmul_rn(c, d))
#define KVT_GPU_MORE(a, b, c, d) __fadd_rn(__fmul_rn(a, b), __fmul_rn(c, d))
#else
#define KVT_GPU_LESS(a, b, c, d) ((a) * (b) - (c) * (d))
#define KVT_GPU_MORE(a, b, c, d) ((a) * (b) + (c) * (d))
#endif

#define KVT_GPU_SAME(x) (x)

/* Four pairs are under way at a time, as in index.h: all are loaded before the first is stored. */
#define KVT_GPU_TURNER(name, type, widen, narrow) \
	KVT_GPU_BOTH void kvt_gpu_turn_##name( \
		const struct kvt_gpu_turning *t, const struct kvt_gpu_angles *angles, uint32_t thread, \
		uint32_t threads) \
	{ \
		for (uint64_t at = thread; at < t->count; at += (uint64_t)threads * KVT_GPU_AT_ONCE) { \
			struct kvt_gpu_two two[KVT_GPU_AT_ONCE]; \
			type a[KVT_GPU_AT_ONCE], b[KVT_GPU_AT_ONCE]; \
			KVT_GPU_UNROLL \
			for (uint32_t i = 0; i < KVT_GPU_AT_ONCE; i++) { \
				uint64_t pair = at + (uint64_t)i * threads; \
				if (pair < t->count) { \
					two[i] = kvt_gpu_two_at(t, (uint32_t)pair); \
					KVT_GPU_LOAD(type, a[i], two[i].a); \
					KVT_GPU_LOAD(type, b[i], two[i].b); \
				} \
			} \
			KVT_GPU_UNROLL \
			for (uint32_t i = 0; i < KVT_GPU_AT_ONCE; i++) { \
				if (at + (uint64_t)i * threads < t->count) { \
					float x = widen(a[i]), y = widen(b[i]); \
					float cosine = angles->cosine[two[i].pair], sine = angles->sine[two[i].pair]; \
					type first = narrow(KVT_GPU_LESS(x, cosine, y, sine)); \
					type second = narrow(KVT_GPU_MORE(y, cosine, x, sine)); \
					KVT_GPU_STORE(type, two[i].a, first); \
					KVT_GPU_STORE(type, two[i].b, second); \
				} \
			} \
		} \
	}
KVT_GPU_TURNER(f32, float, KVT_GPU_SAME, KVT_GPU_SAME)
KVT_GPU_TURNER(bf16, uint16_t, kvt_bf16_to_float, kvt_float_to_bf16)
KVT_GPU_TURNER(f16, uint16_t, kvt_half_to_float, kvt_float_to_half)

/*
 * Turns the pairs of thread number `thread` of `threads`. `angles` are the launch's own, or a copy
 * in memory where neighbouring threads can read different entries at the same time without waiting
 * for each other.
 */
KVT_GPU_BOTH void kvt_gpu_turn_thread(
	const struct kvt_gpu_turning *t, const struct kvt_gpu_angles *angles, uint32_t thread, uint32_t threads)
{
	switch (t->values) {
	case KVT_GPU_F32:
		kvt_gpu_turn_f32(t, angles, thread, threads);
		break;
	case KVT_GPU_BF16:
		kvt_gpu_turn_bf16(t, angles, thread, threads);
		break;
	default:
		kvt_gpu_turn_f16(t, angles, thread, threads);
		break;
	}
}

#endif
