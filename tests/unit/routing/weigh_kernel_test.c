/*
 * weigh_kernel_test.c - each way to add up costs gives the bits of the plain one, writes nothing beyond
 * its arrays, and finds the lowest and all within a limit.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "weigh_kernel.h"

#define MOST   77
#define ROUNDS 2000
#define GUARD  (-12345.0)

static uint64_t dice_state;

static uint32_t dice(uint32_t below)
{
	dice_state += UINT64_C(0x9E3779B97F4A7C15);
	uint64_t x = (dice_state ^ dice_state >> 30) * UINT64_C(0xBF58476D1CE4E5B9);

	return (uint32_t)((x ^ x >> 29) % below);
}

/* What a kernel reads and writes; one more than it may touch. */
struct arrays {
	double costs[MOST + 1];
	float x[MOST + 1];
	int32_t inflight[MOST + 1];
	uint16_t places[MOST + 1];
	uint64_t total;
	double lowest;
	size_t within;
};

static struct kvw_load_board board;
static _Atomic float rates[MOST];
static double saved[MOST];

static void fill(void)
{
	for (size_t i = 0; i < MOST; i++) {
		atomic_store(&board.workers[i].idle_at_ns, dice(4) == 0 ? INT64_MIN / 2 : (int64_t)dice(2000000000));
		atomic_store(&board.workers[i].held,
			kvw_load_held(dice(300),
				dice(3) == 0 ? UINT32_MAX - dice(9) : dice(1 << 20)));
		atomic_store(&rates[i], (float)(1 + dice(1000000)) / 7);
		saved[i] = dice(2) == 0 ? 0 : dice(100000) / 3.0;
	}
}

static void run(const struct kvw_weigh_kernel *kernel, size_t count, bool usable[MOST], struct arrays *a)
{
	for (size_t i = 0; i <= MOST; i++) {
		a->costs[i] = GUARD;
		a->x[i] = (float)GUARD;
		a->inflight[i] = (int32_t)GUARD;
	}
	a->total = kernel->loads(
		&board, rates, count, 1000000000, 0.37, a->costs, a->x, a->inflight);
	for (size_t i = 0; i < count; i++)
		a->costs[i] = usable[i] ? a->costs[i] : INFINITY;
	a->lowest = kernel->sum(count, 40000.25, 0.07f, saved, a->x, a->inflight, a->costs);
	a->within = kernel->within(a->costs, count, a->lowest * 1.5 + 1, a->places);
	ck_assert(a->costs[count] == GUARD && a->x[count] == (float)GUARD);
	ck_assert_int_eq(a->inflight[count], (int32_t)GUARD);
}

/* The figures, one by one. */
static void check_plain(const struct arrays *a, size_t count, bool usable[MOST])
{
	double lowest = INFINITY;
	uint64_t total = 0;
	size_t found = 0;

	for (size_t i = 0; i < count; i++) {
		int64_t queue = board.workers[i].idle_at_ns - 1000000000;
		uint32_t inflight = (uint32_t)board.workers[i].held;
		double context = (double)(board.workers[i].held >> 32);
		double cost = (double)(queue > 0 ? queue : 0) + 0.37 * context;

		cost += (40000.25 - saved[i]) * rates[i] * (1 + 0.07 * inflight);
		total += inflight;
		if (usable[i])
			ck_assert_double_eq_tol(a->costs[i], cost, fabs(cost) * 1e-6);
		else
			ck_assert(isinf(a->costs[i]));
		lowest = a->costs[i] < lowest ? a->costs[i] : lowest;
	}
	ck_assert(a->lowest == lowest && a->total == total);
	for (size_t i = 0; i < count; i++) {
		if (!(a->costs[i] <= lowest * 1.5 + 1))
			continue;
		ck_assert_uint_lt(found, a->within);
		ck_assert_uint_eq(a->places[found++], i);
	}
	ck_assert_uint_eq(found, a->within);
}

START_TEST(kernels_agree)
{
	static struct arrays base, best;
	bool usable[MOST];

	dice_state = 3;
	for (int round = 0; round < ROUNDS; round++) {
		size_t count = 1 + dice(MOST);

		fill();
		for (size_t i = 0; i < count; i++)
			usable[i] = i == 0 || dice(5) != 0;
		run(&kvw_weigh_kernel_base, count, usable, &base);
		check_plain(&base, count, usable);
		run(kvw_weigh_kernel_best(), count, usable, &best);
		ck_assert_mem_eq(best.costs, base.costs, count * sizeof(base.costs[0]));
		ck_assert_mem_eq(best.x, base.x, count * sizeof(base.x[0]));
		ck_assert_mem_eq(best.inflight, base.inflight, count * sizeof(base.inflight[0]));
		ck_assert(best.lowest == base.lowest && best.total == base.total);
		ck_assert_uint_eq(best.within, base.within);
		ck_assert_mem_eq(best.places, base.places, base.within * sizeof(base.places[0]));
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("weigh_kernel");
	TCase *tests = tcase_create("all");
	SRunner *runner = srunner_create(suite);
	int failed;

	tcase_add_test(tests, kernels_agree);
	suite_add_tcase(suite, tests);
	srunner_run_all(runner, CK_NORMAL);
	failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
