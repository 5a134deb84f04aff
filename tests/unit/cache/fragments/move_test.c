/* move_test.c - a moved key is the key computed at the new place, within rounding, for every kind of value. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "fragments/rope.h"
#include "fragments/scale.h"
#include "tests/unit/suite.h"

#define HEAD   96
#define HEADS  41 /* more than one block of the kernel, and a rest */
#define VALUES (HEAD * HEADS)

typedef void move_fn(const struct kvt_rope_turn *, enum kvt_rope_values, void *, const void *, size_t);

static move_fn *const moves[] = {kvt_rope_move, kvt_rope_move_portable};

static uint64_t dice = 1;

static double uniform(void) /* -1 to 1 */
{
	dice = dice * 6364136223846793005U + 1442695040888963407U;
	return (double)(int64_t)dice / 9223372036854775808.0;
}

static uint16_t to_bf16(float value)
{
	uint32_t bits;

	memcpy(&bits, &value, 4);
	return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float from_bf16(uint16_t value)
{
	uint32_t bits = (uint32_t)value << 16;
	float out;

	memcpy(&out, &bits, 4);
	return out;
}

/* Half precision by arithmetic alone: what the kernel's way through bits must give. */
static double half_value(uint16_t half)
{
	int exponent = half >> 10 & 31;
	double part = half & 0x3ff, value;

	if (exponent == 31)
		value = part != 0 ? NAN : INFINITY;
	else
		value = exponent == 0 ? ldexp(part, -24) : ldexp(1024 + part, exponent - 25);
	return half & 0x8000 ? -value : value;
}

static uint16_t nearest_half(double value) /* finite, by looking at all that could be */
{
	uint16_t sign = signbit(value) ? 0x8000 : 0, low = 0, high = 0x7c00;
	double size = fabs(value), below, above;

	if (size >= 65520)
		return sign | 0x7c00;
	while (high - low > 1) {
		uint16_t middle = (uint16_t)((low + high) / 2);

		if (half_value(middle) <= size)
			low = middle;
		else
			high = middle;
	}
	below = size - half_value(low);
	above = (high == 0x7c00 ? 65536 : half_value(high)) - size;
	return sign | (uint16_t)(below < above || (below == above && (low & 1) == 0) ? low : high);
}

static void store(enum kvt_rope_values values, void *to, size_t i, double value)
{
	if (values == KVT_ROPE_F32)
		((float *)to)[i] = (float)value;
	else
		((uint16_t *)to)[i] = values == KVT_ROPE_BF16 ? to_bf16((float)value) : nearest_half(value);
}

static double load(enum kvt_rope_values values, const void *from, size_t i)
{
	if (values == KVT_ROPE_F32)
		return (double)((const float *)from)[i];
	return values == KVT_ROPE_BF16 ? (double)from_bf16(((const uint16_t *)from)[i]) : half_value(((const uint16_t *)from)[i]);
}

/* All heads of `plain` as they are at this position. */
static void at_position(const struct kvt_rope *rope, const double *plain, int64_t position, double *out)
{
	uint32_t n = rope->rotated / 2;

	memcpy(out, plain, sizeof(double) * VALUES);
	for (size_t h = 0; h < HEADS; h++, plain += HEAD, out += HEAD) {
		for (uint32_t i = 0; i < n; i++) {
			size_t one = rope->offset + (rope->layout == KVT_ROPE_HALVES ? i : 2 * i);
			size_t two = one + (rope->layout == KVT_ROPE_HALVES ? n : 1);
			double angle = (double)position * (double)rope->frequency[i];

			out[one] = plain[one] * cos(angle) - plain[two] * sin(angle);
			out[two] = plain[two] * cos(angle) + plain[one] * sin(angle);
		}
	}
}

static bool has_position(const struct kvt_rope *rope, size_t i)
{
	return i % HEAD >= rope->offset && i % HEAD < rope->offset + rope->rotated;
}

static void one_case(move_fn *move, enum kvt_rope_values values, const struct kvt_rope *rope, int64_t from, int64_t to)
{
	/* Two roundings, each of half a step at the length of a pair, 1.42 at most; a step is 2^-23, 2^-8, 2^-11 of it. */
	static const double steps[] = {0x1p-22, 0x1p-7, 0x1p-10};
	size_t bytes = values == KVT_ROPE_F32 ? 4 : 2;
	double plain[VALUES], old[VALUES], new[VALUES];
	char *stored = calloc(VALUES + 1, bytes), *moved = calloc(VALUES + 1, bytes), *canary = moved + VALUES * bytes;
	struct kvt_rope_turn turn;

	for (size_t i = 0; i < VALUES; i++)
		plain[i] = uniform();
	at_position(rope, plain, from, old);
	at_position(rope, plain, to, new);
	for (size_t i = 0; i < VALUES; i++)
		if (has_position(rope, i))
			store(values, stored, i, old[i]);
		else
			for (size_t k = 0; k < bytes; k++) /* any bits, not numbers too */
				stored[i * bytes + k] = (char)(uniform() * 128);
	memset(canary, 0x5a, bytes);
	kvt_rope_turn_by(rope, to - from, &turn);
	move(&turn, values, moved, stored, HEADS);
	for (size_t i = 0; i < VALUES; i++) {
		double off = fabs(load(values, moved, i) - new[i]);

		if (has_position(rope, i))
			ck_assert_msg(off <= 1.5 * steps[values], "values %d, value %zu: off by %g", (int)values, i, off);
		else
			ck_assert_mem_eq(moved + i * bytes, stored + i * bytes, bytes);
	}
	for (size_t i = 0; i < bytes; i++)
		ck_assert_int_eq(canary[i], 0x5a);
	/* In place the same. */
	move(&turn, values, stored, stored, HEADS);
	ck_assert_mem_eq(stored, moved, VALUES * bytes);
	free(stored);
	free(moved);
}

START_TEST(a_moved_key_is_the_key_of_the_new_place)
{
	static const struct kvt_rope_scale scales[] = {{KVT_ROPE_PLAIN, .theta = 10000}, {KVT_ROPE_LINEAR, .theta = 10000, .factor = 4},
		{KVT_ROPE_NTK, .theta = 10000, .factor = 4},
		{KVT_ROPE_YARN, .theta = 1e6, .factor = 4, .original = 4096, .beta_fast = 32, .beta_slow = 1, .truncate = true},
		{KVT_ROPE_LLAMA3, .theta = 5e5, .factor = 8, .original = 8192, .low = 1, .high = 4}};
	static const int64_t places[][2] = {{0, 0}, {0, 1}, {5, 4}, {17, 100000}, {131071, 3}, {70000, 70001}};
	static const uint32_t rotated[][2] = {{HEAD, 0}, {24, 0}, {2, 0}, {24, HEAD - 24}, {40, 7}}; /* and where they begin */
	struct kvt_rope rope = {.head = HEAD, .layout = _i & 1 ? KVT_ROPE_PAIRS : KVT_ROPE_HALVES};

	for (size_t s = 0; s < sizeof(scales) / sizeof(scales[0]); s++) {
		for (size_t r = 0; r < sizeof(rotated) / sizeof(rotated[0]); r++) {
			rope.rotated = rotated[r][0];
			rope.offset = rotated[r][1];
			kvt_rope_scale(&scales[s], rope.rotated, rope.frequency);
			for (size_t p = 0; p < sizeof(places) / sizeof(places[0]); p++)
				for (int values = KVT_ROPE_F32; values <= KVT_ROPE_F16; values++)
					one_case(moves[_i >> 1], values, &rope, places[p][0], places[p][1]);
		}
	}
}
END_TEST

/* No turn at all gives every value back, NaN and infinities included: both ways round alike. */
START_TEST(every_half_and_bfloat_survives)
{
	struct kvt_rope rope = {.head = 64, .rotated = 64, .layout = KVT_ROPE_PAIRS};
	struct kvt_rope_turn turn;
	uint16_t *all = malloc(65536 * sizeof(*all)), *out = malloc(65536 * sizeof(*out));

	kvt_rope_turn_by(&rope, 0, &turn);
	for (size_t i = 0; i < 65536; i += 2) /* a pair of a value and zero: infinity times zero stays out of it */
		all[i] = (uint16_t)(i / 2 + (_i & 1 ? 32768 : 0)), all[i + 1] = 0;
	for (int values = KVT_ROPE_BF16; values <= KVT_ROPE_F16; values++) {
		moves[_i >> 1](&turn, values, out, all, 65536 / 64);
		for (size_t i = 0; i < 65536; i += 2) {
			double before = load(values, all, i), after = load(values, out, i);

			if (isfinite(before))
				ck_assert_msg(before == after, "%04x became %04x", all[i], out[i]);
			else
				ck_assert(isnan(before) ? isnan(after) : isinf(after) || isnan(after));
		}
	}
	free(all);
	free(out);
}
END_TEST

/* Turned by little, values land between halves: each is rounded as arithmetic says. */
START_TEST(halves_are_rounded_to_the_nearest)
{
	struct kvt_rope rope = {.head = 2, .rotated = 2, .layout = KVT_ROPE_PAIRS, .frequency = {1e-3F}};
	struct kvt_rope_turn turn;

	kvt_rope_turn_by(&rope, 1, &turn);
	for (uint32_t i = 0; i < 0x7c00; i++) {
		uint16_t in[2] = {(uint16_t)i, 0}, out[2];
		/* The product as the kernel has it: one float each. */
		float one = (float)half_value(in[0]) * turn.cosine[0], two = (float)half_value(in[0]) * turn.sine[0];

		moves[_i](&turn, KVT_ROPE_F16, out, in, 1);
		ck_assert_uint_eq(out[0], nearest_half((double)one));
		ck_assert_uint_eq(out[1], nearest_half((double)two));
	}
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("move");

	tcase_set_timeout(tcase, 60);
	tcase_add_loop_test(tcase, a_moved_key_is_the_key_of_the_new_place, 0, 4);
	tcase_add_loop_test(tcase, every_half_and_bfloat_survives, 0, 4);
	tcase_add_loop_test(tcase, halves_are_rounded_to_the_nearest, 0, 2);
	return run_tcase("move", tcase);
}
