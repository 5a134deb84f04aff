/*
 * weigh_kernel_test.c - each way to add up costs and hits gives the bits of the plain one, writes nothing
 * beyond its arrays, and finds the lowest and all within a limit.
 */
#include <check.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "routing/weigh_kernel.h"
#include "tests/unit/suite.h"

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

#define CHUNKS 50

/* What a kernel reads and writes; one more than it may touch. */
struct arrays {
	double costs[MOST + 1];
	double before[MOST + 1]; /* costs without hits */
	float x[MOST + 1];
	int32_t inflight[MOST + 1];
	uint16_t places[MOST + 1];
	uint32_t hits[MOST + 1];
	double saved[MOST + 1];
	double reached[MOST + KVW_REACHED_SPARE + 1];
	uint64_t total;
	double lowest;
	double lowest_reached;
	size_t within;
};

static struct kvw_load_board board;
static _Atomic float rates[MOST];
static struct kvw_chunk chunks[CHUNKS];
static uint32_t workers[MOST]; /* those that are reached, and how far; both in two chains */
static uint32_t held[2][MOST];

static const struct kvw_cost_terms cost_terms = {1000000000, 0.37, 40000.25, 12000.5, 0.07f};
static struct kvw_reached reached;

static void fill(void)
{
	uint32_t end = dice(4) == 0 ? UINT32_MAX / 2 : 0;

	for (size_t i = 0; i < MOST; i++) {
		atomic_store(&board.workers[i].idle_at_ns,
			dice(4) == 0 ? INT64_MIN / 2 : (int64_t)dice(2000000000));
		atomic_store(&board.workers[i].held,
			kvw_load_held(
				dice(300), dice(3) == 0 ? UINT32_MAX - dice(9) : dice(1 << 20)));
		atomic_store(&board.rooms[i].tokens, dice(2) == 0 ? INFINITY : (float)(1 + dice(1 << 20)));
		atomic_store(&board.rooms[i].ns_per_token, dice(3) == 0 ? 0 : (float)dice(1 << 20) / 3);
		atomic_store(&rates[i], (float)(1 + dice(1000000)) / 7);
		workers[i] = (uint32_t)i;
		held[0][i] = 1 + dice(CHUNKS);
		held[1][i] = 1 + dice(CHUNKS);
	}
	for (size_t i = 0; i < CHUNKS; i++) {
		end += dice(1000);
		chunks[i] = (struct kvw_chunk){.hash = dice(UINT32_MAX), .end = end};
	}
	reached = (struct kvw_reached){.chunks = chunks,
		.workers = workers,
		.tokens_per_unit = dice(2) == 0 ? 1 : dice(1000) / 2000.0,
		.pairs = dice(1000) * 1e-9,
		.omega = 0.07f,
		.most = dice(20000),
		.block_size = 1u << dice(9)};
}

/* Some of `count` workers are reached, in any order. */
static void choose_reached(size_t count)
{
	for (size_t i = count; i-- > 1;) {
		size_t other = dice((uint32_t)i + 1);
		uint32_t kept = workers[i];

		workers[i] = workers[other];
		workers[other] = kept;
	}
	reached.count = dice((uint32_t)count + 1);
}

static void run(const struct kvw_weigh_kernel *kernel, size_t count, struct arrays *a)
{
	struct kvw_weights weights = {a->costs, a->hits, a->saved, a->x, a->inflight};

	for (size_t i = 0; i <= MOST; i++) {
		a->costs[i] = GUARD;
		a->x[i] = (float)GUARD;
		a->inflight[i] = (int32_t)GUARD;
		a->saved[i] = GUARD; /* not looked at where there are no hits */
		a->hits[i] = 0;
	}
	a->reached[reached.count + KVW_REACHED_SPARE] = GUARD;
	a->total = kernel->loads(
		&board, rates, count, &cost_terms, a->costs, a->x, a->inflight, &a->lowest);
	a->within = kernel->within(a->costs, count, a->lowest * 1.5 + 1, a->places);
	memcpy(a->before, a->costs, sizeof(a->before));
	for (unsigned chain = 0; chain < 2; chain++) {
		reached.held = held[chain];
		a->lowest_reached = kernel->take(&reached, &weights, a->reached);
	}
	ck_assert(a->costs[count] == GUARD && a->x[count] == (float)GUARD);
	ck_assert_int_eq(a->inflight[count], (int32_t)GUARD);
	ck_assert_uint_eq(a->hits[count], 0);
	ck_assert(a->saved[count] == GUARD);
	ck_assert(a->reached[reached.count + KVW_REACHED_SPARE] == GUARD);
}

/* The costs, one by one. */
static void check_costs(const struct arrays *a, size_t count)
{
	double lowest = INFINITY;
	uint64_t total = 0;
	size_t found = 0;

	for (size_t i = 0; i < count; i++) {
		int64_t queue = board.workers[i].idle_at_ns - 1000000000;
		uint32_t inflight = (uint32_t)board.workers[i].held;
		double context = (double)(board.workers[i].held >> 32);
		double over = context + 12000.5 - (double)board.rooms[i].tokens;
		double wait = over > 0 ? over * (double)board.rooms[i].ns_per_token : 0;
		double cost = fmax(queue > 0 ? (double)queue : 0, wait) + 0.37 * context;

		cost += 40000.25 * rates[i] * (1 + 0.07 * inflight);
		total += inflight;
		ck_assert_double_eq_tol(a->before[i], cost, fabs(cost) * 1e-6);
		ck_assert(a->x[i] == rates[i]);
		ck_assert_uint_eq((uint32_t)a->inflight[i], inflight);
		lowest = a->before[i] < lowest ? a->before[i] : lowest;
	}
	ck_assert(a->lowest == lowest && a->total == total);
	for (size_t i = 0; i < count; i++) {
		if (!(a->before[i] <= lowest * 1.5 + 1))
			continue;
		ck_assert_uint_lt(found, a->within);
		ck_assert_uint_eq(a->places[found++], i);
	}
	ck_assert_uint_eq(found, a->within);
}

/* Tokens of one chain that are reused. */
static uint32_t tokens_of(uint32_t chunks_held)
{
	uint32_t tokens =
		(uint32_t)floor(chunks[chunks_held - 1].end * reached.tokens_per_unit + 0.5);

	tokens = tokens < reached.most ? tokens : reached.most;
	return tokens / reached.block_size * reached.block_size;
}

static void check_hits(const struct arrays *a, size_t count)
{
	double lowest = INFINITY;
	size_t untouched = 0;

	for (size_t r = 0; r < reached.count; r++) {
		uint32_t i = workers[r];
		uint32_t hit[2] = {tokens_of(held[0][r]), tokens_of(held[1][r])};
		double each = a->x[i] * (1 + 0.07 * a->inflight[i]);
		double work = 0;

		for (unsigned chain = 0; chain < 2; chain++)
			work += hit[chain] * (1 + hit[chain] * reached.pairs / 2);
		ck_assert_uint_eq(a->hits[i], hit[0] + hit[1]);
		ck_assert_double_le(fabs(a->saved[i] - work), work * 1e-12);
		ck_assert_double_le(fabs(a->before[i] - a->costs[i] - work * each),
			(work * each + a->before[i]) * 1e-6);
		ck_assert(a->reached[r] == a->costs[i]);
		lowest = a->reached[r] < lowest ? a->reached[r] : lowest;
	}
	ck_assert(a->lowest_reached == lowest);
	for (size_t i = 0; i < count; i++)
		untouched += a->saved[i] == GUARD && a->hits[i] == 0 && a->costs[i] == a->before[i];
	ck_assert_uint_eq(untouched, count - reached.count);
}

START_TEST(kernels_agree)
{
	static struct arrays base, best;

	dice_state = 3;
	for (int round = 0; round < ROUNDS; round++) {
		size_t count = 1 + dice(MOST);

		fill();
		choose_reached(count);
		run(&kvw_weigh_kernel_base, count, &base);
		check_costs(&base, count);
		check_hits(&base, count);
		run(kvw_weigh_kernel_best(), count, &best);
		ck_assert_mem_eq(best.costs, base.costs, count * sizeof(base.costs[0]));
		ck_assert_mem_eq(best.x, base.x, count * sizeof(base.x[0]));
		ck_assert_mem_eq(best.inflight, base.inflight, count * sizeof(base.inflight[0]));
		ck_assert_mem_eq(best.hits, base.hits, count * sizeof(base.hits[0]));
		ck_assert_mem_eq(best.saved, base.saved, count * sizeof(base.saved[0]));
		ck_assert_mem_eq(
			best.reached, base.reached, reached.count * sizeof(base.reached[0]));
		ck_assert(best.lowest_reached == base.lowest_reached);
		ck_assert(best.lowest == base.lowest && best.total == base.total);
		ck_assert_uint_eq(best.within, base.within);
		ck_assert_mem_eq(best.places, base.places, base.within * sizeof(base.places[0]));
	}
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("all");

	tcase_add_test(tests, kernels_agree);
	return run_tcase("weigh_kernel", tests);
}
