/*
 * extents_test.c - every answer against an array of bytes, one per unit, that is searched naively.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "memory/extents.h"
#include "tests/unit/suite.h"

#define MOST_UNITS 4096
#define MOST_HELD  2048

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

/* An object: what one take or mark gave. */
struct object {
	struct kvt_extent runs[KVT_MAX_EXTENTS];
	uint32_t n;
};

struct model {
	struct kvt_extents *e;
	uint8_t taken[MOST_UNITS];
	uint32_t count;
	struct object held[MOST_HELD];
	uint32_t held_count;
	uint64_t random;
};

static uint32_t model_free(const struct model *m)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->count; i++)
		n += m->taken[i] == 0;
	return n;
}

static int longest_first(const void *a, const void *b)
{
	const struct kvt_extent *x = a, *y = b;

	if (x->count != y->count)
		return x->count < y->count ? 1 : -1;
	return x->first < y->first ? -1 : 1;
}

/* All free runs, longest first. */
static uint32_t model_runs(const struct model *m, struct kvt_extent *out)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < m->count; i++) {
		if (m->taken[i] != 0)
			continue;
		if (i > 0 && m->taken[i - 1] == 0)
			out[n - 1].count++;
		else
			out[n++] = (struct kvt_extent){i, 1};
	}
	qsort(out, n, sizeof(*out), longest_first);
	return n;
}

static void model_fill(struct model *m, struct kvt_extent run, uint8_t from, uint8_t to)
{
	ck_assert_uint_gt(run.count, 0);
	ck_assert_uint_le(run.first, m->count);
	ck_assert_uint_le(run.count, m->count - run.first);
	for (uint32_t i = 0; i < run.count; i++) {
		ck_assert(m->taken[run.first + i] == from);
		m->taken[run.first + i] = to;
	}
}

static void check_sums(const struct model *m)
{
	struct kvt_extent runs[MOST_UNITS];
	uint32_t n = model_runs(m, runs);

	ck_assert_uint_eq(kvt_extents_free(m->e), model_free(m));
	ck_assert_uint_eq(kvt_extents_largest(m->e), n > 0 ? runs[0].count : 0);
}

/* What the fewest runs are, and the one run if there is one that fits. */
static uint32_t expect_runs(const struct model *m, uint32_t units, struct kvt_extent *one)
{
	struct kvt_extent runs[MOST_UNITS];
	uint32_t n = model_runs(m, runs), sum = 0;

	*one = (struct kvt_extent){0, 0};
	for (uint32_t i = 0; i < n; i++) {
		if (runs[i].count >= units && (one->count == 0 || runs[i].count < one->count))
			*one = runs[i];
	}
	for (uint32_t i = 0; i < n; i++) {
		sum += runs[i].count;
		if (sum >= units)
			return i + 1;
	}
	return UINT32_MAX;
}

static void step_take(struct model *m)
{
	uint32_t units = 1 + (uint32_t)(random_next(&m->random) % (m->count / 4 + 2));
	uint32_t room = 1 + (uint32_t)(random_next(&m->random) % 20), n = room, sum = 0;
	uint32_t allowed = room < KVT_MAX_EXTENTS ? room : KVT_MAX_EXTENTS, fewest;
	struct kvt_extent runs[32], one;
	enum kvt_status status;

	if (m->held_count == MOST_HELD)
		return;
	if (random_next(&m->random) % 3 != 0)
		units = 1 + units % 8;
	fewest = expect_runs(m, units, &one);
	status = kvt_extents_take(m->e, units, runs, &n);
	if (fewest > allowed) {
		ck_assert_int_eq(status, KVT_FULL);
		ck_assert_uint_eq(n, room);
		return;
	}
	ck_assert_int_eq(status, KVT_OK);
	ck_assert_uint_eq(n, fewest);
	for (uint32_t i = 0; i < n; i++) {
		model_fill(m, runs[i], 0, 1);
		sum += runs[i].count;
	}
	ck_assert_uint_eq(sum, units);
	if (fewest == 1)
		ck_assert_uint_eq(runs[0].first, one.first);
	memcpy(m->held[m->held_count].runs, runs, n * sizeof(*runs));
	m->held[m->held_count++].n = n;
}

static void step_mark(struct model *m)
{
	struct kvt_extent run = {(uint32_t)(random_next(&m->random) % (m->count + 2)),
		(uint32_t)(random_next(&m->random) % 12)};
	enum kvt_status expected = KVT_OK;

	if (m->held_count == MOST_HELD)
		return;
	if (run.count == 0 || run.first + run.count > m->count)
		expected = KVT_EINVAL;
	for (uint32_t i = 0; expected == KVT_OK && i < run.count; i++) {
		if (m->taken[run.first + i] != 0)
			expected = KVT_EXISTS;
	}
	ck_assert_int_eq(kvt_extents_mark(m->e, run), expected);
	if (expected != KVT_OK)
		return;
	model_fill(m, run, 0, 1);
	m->held[m->held_count].runs[0] = run;
	m->held[m->held_count++].n = 1;
}

static void step_give(struct model *m)
{
	uint32_t i;

	if (m->held_count == 0)
		return;
	i = (uint32_t)(random_next(&m->random) % m->held_count);
	for (uint32_t r = 0; r < m->held[i].n; r++)
		model_fill(m, m->held[i].runs[r], 1, 0);
	kvt_extents_give(m->e, m->held[i].runs, m->held[i].n);
	m->held[i] = m->held[--m->held_count];
}

/* A part of a run, from its beginning or its end. */
static void step_give_part(struct model *m)
{
	struct kvt_extent *run, part;
	struct object *object;
	uint32_t count;

	if (m->held_count == 0)
		return;
	object = &m->held[random_next(&m->random) % m->held_count];
	run = &object->runs[random_next(&m->random) % object->n];
	if (run->count < 2)
		return;
	count = 1 + (uint32_t)(random_next(&m->random) % (run->count - 1));
	part = (struct kvt_extent){run->first, count};
	if (random_next(&m->random) % 2 == 0)
		part.first += run->count - count;
	else
		run->first += count;
	run->count -= count;
	model_fill(m, part, 1, 0);
	kvt_extents_give(m->e, &part, 1);
}

static void step_grow(struct model *m)
{
	uint32_t count = m->count + (uint32_t)(random_next(&m->random) % 100);

	if (count > MOST_UNITS)
		return;
	ck_assert_int_eq(kvt_extents_grow(m->e, count), KVT_OK);
	if (count > 0)
		ck_assert_int_eq(kvt_extents_grow(m->e, count - 1), KVT_EINVAL);
	m->count = count;
}

static void play(uint64_t seed, uint32_t count, int steps, bool grows)
{
	static struct model m; /* large */

	memset(&m, 0, sizeof(m));
	m.random = seed * 2654435761u + 1;
	m.count = count;
	ck_assert_int_eq(kvt_extents_create(count, &m.e), KVT_OK);
	for (int i = 0; i < steps; i++) {
		uint64_t what = random_next(&m.random) % 100;
		bool filling = i / 200 % 2 == 0;

		if (what < 5)
			step_mark(&m);
		else if (grows && what < 8)
			step_grow(&m);
		else if (what < 12)
			step_give_part(&m);
		else if (what < (filling ? 65u : 35u))
			step_take(&m);
		else
			step_give(&m);
		check_sums(&m);
	}
	while (m.held_count > 0)
		step_give(&m);
	check_sums(&m);
	ck_assert_uint_eq(kvt_extents_largest(m.e), m.count);
	kvt_extents_destroy(m.e);
}

START_TEST(test_against_model)
{
	static const uint32_t counts[] = {1, 2, 63, 64, 65, 127, 128, 129, 500, 4095, 4096};

	for (uint64_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++)
		play(i + 1, counts[i], counts[i] > 1000 ? 1500 : 3000, false);
}
END_TEST

START_TEST(test_growing_against_model)
{
	for (uint64_t seed = 20; seed < 26; seed++)
		play(seed, (uint32_t)(seed - 20) * 33, 2000, true);
}
END_TEST

START_TEST(test_best_fit)
{
	struct kvt_extents *e;
	struct kvt_extent out[KVT_MAX_EXTENTS];
	uint32_t n = 1;

	ck_assert_int_eq(kvt_extents_create(100, &e), KVT_OK);
	/* Free: 10 to 20, 30 to 34, 50 to 56, 90 to 100. */
	ck_assert_int_eq(kvt_extents_mark(e, (struct kvt_extent){0, 10}), KVT_OK);
	ck_assert_int_eq(kvt_extents_mark(e, (struct kvt_extent){20, 10}), KVT_OK);
	ck_assert_int_eq(kvt_extents_mark(e, (struct kvt_extent){34, 16}), KVT_OK);
	ck_assert_int_eq(kvt_extents_mark(e, (struct kvt_extent){56, 34}), KVT_OK);
	ck_assert_int_eq(kvt_extents_take(e, 5, out, &n), KVT_OK);
	ck_assert_uint_eq(out[0].first, 50);
	n = 1;
	ck_assert_int_eq(kvt_extents_take(e, 4, out, &n), KVT_OK);
	ck_assert_uint_eq(out[0].first, 30);
	n = 1;
	ck_assert_int_eq(kvt_extents_take(e, 11, out, &n), KVT_FULL);
	n = 2;
	ck_assert_int_eq(kvt_extents_take(e, 11, out, &n), KVT_OK);
	ck_assert_uint_eq(n, 2);
	ck_assert_uint_eq(out[0].count + out[1].count, 11);
	kvt_extents_destroy(e);
}
END_TEST

START_TEST(test_arguments)
{
	struct kvt_extents *e;
	struct kvt_extent out[KVT_MAX_EXTENTS];
	uint32_t n = KVT_MAX_EXTENTS;

	kvt_extents_destroy(NULL);
	ck_assert_int_eq(kvt_extents_create(0, &e), KVT_OK);
	ck_assert_uint_eq(kvt_extents_free(e), 0);
	ck_assert_uint_eq(kvt_extents_largest(e), 0);
	ck_assert_int_eq(kvt_extents_take(e, 1, out, &n), KVT_FULL);
	ck_assert_int_eq(kvt_extents_mark(e, (struct kvt_extent){0, 1}), KVT_EINVAL);
	ck_assert_int_eq(kvt_extents_grow(e, 10), KVT_OK);
	ck_assert_int_eq(kvt_extents_take(e, 0, out, &n), KVT_EINVAL);
	n = 0;
	ck_assert_int_eq(kvt_extents_take(e, 1, out, &n), KVT_EINVAL);
	ck_assert_int_eq(kvt_extents_mark(e, (struct kvt_extent){5, UINT32_MAX}), KVT_EINVAL);
	ck_assert_int_eq(kvt_extents_mark(e, (struct kvt_extent){UINT32_MAX, 2}), KVT_EINVAL);
	ck_assert_int_eq(kvt_extents_mark(e, (struct kvt_extent){5, 5}), KVT_OK);
	ck_assert_int_eq(kvt_extents_mark(e, (struct kvt_extent){4, 2}), KVT_EXISTS);
	ck_assert_uint_eq(kvt_extents_free(e), 5);
	kvt_extents_destroy(e);
}
END_TEST

/* Every second unit free: as many free runs as there can be. */
START_TEST(test_most_runs)
{
	for (uint32_t units = 1; units <= 300; units += 1) {
		struct kvt_extents *e;
		struct kvt_extent out[KVT_MAX_EXTENTS], run = {0, 1};
		uint32_t n = KVT_MAX_EXTENTS;

		ck_assert_int_eq(kvt_extents_create(units, &e), KVT_OK);
		for (run.first = 0; run.first < units; run.first++)
			ck_assert_int_eq(kvt_extents_mark(e, run), KVT_OK);
		for (run.first = 0; run.first < units; run.first += 2)
			kvt_extents_give(e, &run, 1);
		ck_assert_uint_eq(kvt_extents_free(e), (units + 1) / 2);
		ck_assert_uint_eq(kvt_extents_largest(e), 1);
		ck_assert_int_eq(kvt_extents_take(e, 17, out, &n), KVT_FULL);
		for (run.first = 1; run.first < units; run.first += 2)
			kvt_extents_give(e, &run, 1);
		ck_assert_uint_eq(kvt_extents_largest(e), units);
		kvt_extents_destroy(e);
	}
}
END_TEST

/* A large space: sums near the limits of 32 bits, with little memory. */
START_TEST(test_large_space)
{
	const uint32_t units = UINT32_C(1) << 28;
	struct kvt_extents *e;
	struct kvt_extent out[KVT_MAX_EXTENTS], last;
	uint32_t n = 1;

	ck_assert_int_eq(kvt_extents_create(units, &e), KVT_OK);
	ck_assert_uint_le(kvt_extents_bytes(e), units / 8 + units / 8 / 32);
	ck_assert_int_eq(kvt_extents_mark(e, (struct kvt_extent){units - 1, 1}), KVT_OK);
	ck_assert_int_eq(kvt_extents_take(e, units - 2, out, &n), KVT_OK);
	ck_assert_uint_eq(out[0].first, 0);
	ck_assert_uint_eq(kvt_extents_largest(e), 1);
	last = out[0];
	ck_assert_int_eq(kvt_extents_take(e, 1, out, &n), KVT_OK);
	ck_assert_uint_eq(out[0].first, units - 2);
	kvt_extents_give(e, &last, 1);
	kvt_extents_give(e, out, 1);
	ck_assert_uint_eq(kvt_extents_largest(e), units - 1);
	kvt_extents_destroy(e);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("all");

	tcase_set_timeout(tcase, 100);
	tcase_add_test(tcase, test_against_model);
	tcase_add_test(tcase, test_growing_against_model);
	tcase_add_test(tcase, test_best_fit);
	tcase_add_test(tcase, test_arguments);
	tcase_add_test(tcase, test_most_runs);
	tcase_add_test(tcase, test_large_space);
	return run_tcase("extents", tcase);
}
