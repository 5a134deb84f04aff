/*
 * move.c - turns keys to positions at a distance.
 *
 * Every token of a fragment moves by the same distance, so cosine and sine of each pair are
 * computed once a fragment, in double from an angle that is reduced there, and a head costs six
 * operations a pair. Heads are turned in blocks: widened to float, turned, rounded back, in three
 * loops over a few KiB that the compiler makes into vectors; the same body is compiled with AVX2,
 * which runs where the machine has it, and without. Where only a part of a head turns, the whole
 * head is copied, and these loops process that part alone. `bench/run.sh fragments` compares its
 * speed with memcpy.
 */
#include <math.h>
#include <string.h>

#include "fragments/number.h"
#include "fragments/rope.h"

/* number of values turned at a time: 8 KiB of floats, which fit into the first cache */
#define BLOCK 2048

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#define WITH_AVX2 1
#define FOR_AVX2  __attribute__((target("avx2,fma,f16c")))
#else
#define WITH_AVX2 0
#endif

#define INLINE static inline __attribute__((always_inline))

/* Returns whether this machine has all instructions of the faster kernel. Called once for each
 * turn, because on a virtual machine the question may be slow. */
static bool has_vectors(void)
{
#if WITH_AVX2
	unsigned int a, b, c, d;

	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __get_cpuid(1, &a, &b, &c, &d) != 0 &&
	       (c & bit_F16C) != 0;
#else
	return false;
#endif
}

void kvt_rope_turn_by(const struct kvt_rope *rope, int64_t distance, struct kvt_rope_turn *out)
{
	out->head = rope->head;
	out->offset = rope->offset;
	out->rotated = rope->rotated;
	out->layout = rope->layout;
	out->vectors = has_vectors();
	for (uint32_t i = 0; i < rope->rotated / 2; i++) {
		double angle = (double)distance * (double)rope->frequency[i];

		out->cosine[i] = (float)cos(angle);
		out->sine[i] = (float)sin(angle);
	}
}

INLINE void widen_bf16(const uint16_t *from, float *to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = kvt_bf16_to_float(from[i]);
}

INLINE void narrow_bf16(const float *from, uint16_t *to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = kvt_float_to_bf16(from[i]);
}

float kvt_rope_half_to_float(uint16_t half)
{
	return kvt_half_to_float(half);
}

static void widen_f16(const uint16_t *from, float *to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = kvt_half_to_float(from[i]);
}

static void narrow_f16(const float *from, uint16_t *to, size_t n)
{
	for (size_t i = 0; i < n; i++)
		to[i] = kvt_float_to_half(from[i]);
}

/* Turns the rotated part of each head in x, one after the other. */
INLINE void turn_halves(const struct kvt_rope_turn *turn, float *x, size_t heads)
{
	uint32_t n = turn->rotated / 2;

	for (; heads > 0; heads--, x += turn->rotated) {
		for (uint32_t i = 0; i < n; i++) {
			float a = x[i], b = x[i + n];

			x[i] = a * turn->cosine[i] - b * turn->sine[i];
			x[i + n] = b * turn->cosine[i] + a * turn->sine[i];
		}
	}
}

INLINE void turn_pairs(const struct kvt_rope_turn *turn, float *x, size_t heads)
{
	uint32_t n = turn->rotated / 2;

	for (; heads > 0; heads--, x += turn->rotated) {
		for (uint32_t i = 0; i < n; i++) {
			float a = x[2 * i], b = x[2 * i + 1];

			x[2 * i] = a * turn->cosine[i] - b * turn->sine[i];
			x[2 * i + 1] = b * turn->cosine[i] + a * turn->sine[i];
		}
	}
}

INLINE void turn_block(const struct kvt_rope_turn *turn, float *x, size_t heads)
{
	if (turn->layout == KVT_ROPE_HALVES)
		turn_halves(turn, x, heads);
	else
		turn_pairs(turn, x, heads);
}

static size_t value_bytes(enum kvt_rope_values values)
{
	return values == KVT_ROPE_F32 ? sizeof(float) : sizeof(uint16_t);
}

typedef void widen_fn(const uint16_t *from, float *to, size_t n);
typedef void narrow_fn(const float *from, uint16_t *to, size_t n);

INLINE void load(enum kvt_rope_values values, float *x, const void *from, size_t n, widen_fn *widen)
{
	if (values == KVT_ROPE_F32)
		memcpy(x, from, n * sizeof(float));
	else if (values == KVT_ROPE_BF16)
		widen_bf16(from, x, n);
	else
		widen(from, x, n);
}

INLINE void save(enum kvt_rope_values values, void *to, const float *x, size_t n, narrow_fn *narrow)
{
	if (values == KVT_ROPE_F32)
		memcpy(to, x, n * sizeof(float));
	else if (values == KVT_ROPE_BF16)
		narrow_bf16(x, to, n);
	else
		narrow(x, to, n);
}

/* Moves one block of heads, at most BLOCK values. widen and narrow convert half precision. */
INLINE void move_block_with(const struct kvt_rope_turn *turn, enum kvt_rope_values values, void *to, const void *from,
	size_t heads, widen_fn *widen, narrow_fn *narrow)
{
	size_t value = value_bytes(values), step = turn->head * value, first = turn->offset * value;
	bool whole = turn->rotated == turn->head;
	/* number of values that are turned */
	size_t rows = whole ? 1 : heads, n = whole ? heads * turn->head : turn->rotated;
	float x[BLOCK];

	if (!whole && to != from)
		memcpy(to, from, heads * step);
	for (size_t i = 0; i < rows; i++)
		load(values, x + i * n, (const char *)from + first + i * step, n, widen);
	turn_block(turn, x, heads);
	for (size_t i = 0; i < rows; i++)
		save(values, (char *)to + first + i * step, x + i * n, n, narrow);
}

static void move_block(const struct kvt_rope_turn *turn, enum kvt_rope_values values, void *to, const void *from,
	size_t heads)
{
	move_block_with(turn, values, to, from, heads, widen_f16, narrow_f16);
}

#if WITH_AVX2
FOR_AVX2 static void widen_f16_avx2(const uint16_t *from, float *to, size_t n)
{
	size_t i = 0;

	for (; i + 8 <= n; i += 8)
		_mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(from + i))));
	widen_f16(from + i, to + i, n - i);
}

FOR_AVX2 static void narrow_f16_avx2(const float *from, uint16_t *to, size_t n)
{
	size_t i = 0;

	for (; i + 8 <= n; i += 8) {
		__m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);

		_mm_storeu_si128((__m128i *)(void *)(to + i), halves);
	}
	narrow_f16(from + i, to + i, n - i);
}

FOR_AVX2 static void move_block_avx2(const struct kvt_rope_turn *turn, enum kvt_rope_values values, void *to,
	const void *from, size_t heads)
{
	move_block_with(turn, values, to, from, heads, widen_f16_avx2, narrow_f16_avx2);
}
#endif

static void move_with(void (*block)(const struct kvt_rope_turn *, enum kvt_rope_values, void *, const void *, size_t),
	const struct kvt_rope_turn *turn, enum kvt_rope_values values, void *to, const void *from, size_t heads)
{
	size_t most = BLOCK / turn->head;
	size_t bytes = most * turn->head * value_bytes(values);

	while (heads > 0) {
		size_t n = heads < most ? heads : most;

		block(turn, values, to, from, n);
		heads -= n;
		to = (char *)to + bytes;
		from = (const char *)from + bytes;
	}
}

void kvt_rope_move_portable(const struct kvt_rope_turn *turn, enum kvt_rope_values values, void *to,
	const void *from, size_t heads)
{
	move_with(move_block, turn, values, to, from, heads);
}

void kvt_rope_move(const struct kvt_rope_turn *turn, enum kvt_rope_values values, void *to, const void *from,
	size_t heads)
{
#if WITH_AVX2
	if (turn->vectors) {
		move_with(move_block_avx2, turn, values, to, from, heads);
		return;
	}
#endif
	kvt_rope_move_portable(turn, values, to, from, heads);
}
