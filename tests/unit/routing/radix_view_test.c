/*
 * radix_view_test.c - windows, rings and ledgers, also where ticks wrap around.
 */
#include <stdlib.h>
#include <string.h>

#include "routing/radix_view.h"
#include "support.h"
#include "tests/unit/suite.h"

#define TICKS 64

static struct kvw_views views;
static void *memory; /* of the views */

static void setup(void)
{
	uint64_t bytes = (kvw_views_bytes(TICKS) + 63) / 64 * 64;

	memory = aligned_alloc(64, bytes);
	ck_assert_ptr_nonnull(memory);
	memset(memory, 0, bytes);
	kvw_views_init(&views, memory, TICKS, 32);
}

static void teardown(void)
{
	free(memory);
}

/* New tokens for a worker. Returns the tick that they were entered at. */
static uint32_t use_new(uint32_t worker, uint64_t capacity, int64_t tokens)
{
	struct kvw_ledger ledger;
	uint32_t tick = 0;

	kvw_ledger_open(&ledger, &views, worker, capacity);
	tick = ledger.now;
	kvw_ledger_add(&ledger, tokens);
	kvw_ledger_turn(&ledger);
	kvw_ledger_close(&ledger);
	return tick;
}

static bool alive(uint32_t worker, uint32_t tick)
{
	return kvw_view_alive(kvw_view_window(&views, worker), tick);
}

START_TEST(oldest_ticks_die_first)
{
	uint32_t ticks[30];

	ck_assert(!alive(3, 0) && !alive(3, 1));
	for (unsigned i = 0; i < 30; i++) {
		ticks[i] = use_new(3, 1000, 100);
		ck_assert_uint_le(kvw_view_tokens(&views, 3), 1000);
		for (unsigned k = 0; k <= i; k++)
			EXPECT(alive(3, ticks[k]) == (k + 10 > i));
	}
	ck_assert_uint_eq(kvw_view_tokens(&views, 3), 1000);
	ck_assert_uint_eq(kvw_view_tokens(&views, 4), 0);
}
END_TEST

START_TEST(use_makes_young)
{
	struct kvw_ledger ledger;
	uint32_t first = 0;
	uint32_t again = 0;

	first = use_new(0, 1000, 100);
	for (unsigned i = 0; i < 8; i++)
		(void)use_new(0, 1000, 100);
	kvw_ledger_open(&ledger, &views, 0, 1000);
	again = ledger.now;
	kvw_ledger_move(&ledger, first, 100);
	kvw_ledger_turn(&ledger);
	kvw_ledger_close(&ledger);
	ck_assert_uint_eq(kvw_view_tokens(&views, 0), 900);
	for (unsigned i = 0; i < 5; i++)
		(void)use_new(0, 1000, 100);
	ck_assert(!alive(0, first));
	ck_assert(alive(0, again));
	ck_assert_uint_eq(kvw_view_tokens(&views, 0), 1000);
}
END_TEST

/* A ledger that moves more ticks than it can note, back and forth among them, counts each token once; what is
 * forgotten of two ticks goes from both. */
START_TEST(many_ticks_move_at_once)
{
	struct kvw_ledger ledger;
	uint32_t ticks[KVW_LEDGER_MOVES + 7];
	uint32_t now = 0;
	const unsigned count = sizeof(ticks) / sizeof(ticks[0]);

	for (unsigned i = 0; i < count; i++)
		ticks[i] = use_new(0, 1500000, 100000);
	ck_assert(alive(0, ticks[0]));
	kvw_ledger_open(&ledger, &views, 0, 1 << 24);
	now = ledger.now;
	for (unsigned i = 0; i < count; i++) {
		kvw_ledger_move(&ledger, ticks[i], 10);
		kvw_ledger_move(&ledger, ticks[i], 20);
		kvw_ledger_move(&ledger, ticks[count - 1 - i], 5);
		kvw_ledger_move(&ledger, now, 1);
	}
	kvw_ledger_close(&ledger);
	ck_assert_uint_eq(kvw_view_tokens(&views, 0), 1500000);
	for (unsigned i = 0; i < count; i++) { /* each has lost 35 */
		uint64_t before = kvw_view_tokens(&views, 0);
		struct kvw_move parts[2] = {{ticks[i], 99965}, {now, 35}};

		kvw_view_forget(&views, 0, parts);
		EXPECT(kvw_view_tokens(&views, 0) == before - 100000);
		EXPECT(views.rings[ticks[i] & (TICKS - 1)] == 0);
	}
	ck_assert_uint_eq(kvw_view_tokens(&views, 0), 0);
}
END_TEST

START_TEST(purge_kills_every_tick)
{
	uint32_t ticks[200];

	for (unsigned i = 0; i < 200; i++) {
		ticks[i] = use_new(1, 1000, 70);
		if (i % 37 == 0) {
			kvw_view_purge(&views, 1);
			ck_assert_uint_eq(kvw_view_tokens(&views, 1), 0);
			for (unsigned k = 0; k <= i; k++)
				EXPECT(!alive(1, ticks[k]));
		}
	}
	ck_assert_uint_eq(kvw_views_purges(&views), 6);
}
END_TEST

/* A ledger that was open across a purge leaves nothing behind. */
START_TEST(late_ledger_is_void)
{
	struct kvw_ledger ledger;
	uint32_t tick = 0;

	tick = use_new(1, 1000, 100);
	kvw_ledger_open(&ledger, &views, 1, 1000);
	kvw_ledger_move(&ledger, tick, 100);
	kvw_ledger_add(&ledger, 50);
	kvw_view_purge(&views, 1);
	kvw_ledger_close(&ledger);
	kvw_view_forget(&views, 1, (struct kvw_move[2]){{tick, 100}, {tick, 0}});
	ck_assert_uint_eq(kvw_view_tokens(&views, 1), 0);
	(void)use_new(1, 1000, 30);
	ck_assert_uint_eq(kvw_view_tokens(&views, 1), 30);
}
END_TEST

/* Long lives: ticks pass 2^32. */
START_TEST(ticks_wrap_around)
{
	uint32_t ticks[300];

	views.windows[2] = (uint64_t)(UINT32_MAX - 99) << 32 | (UINT32_MAX - 99);
	for (unsigned i = 0; i < 300; i++) {
		ticks[i] = use_new(2, 1000, 100);
		for (unsigned k = 0; k <= i; k++)
			EXPECT(alive(2, ticks[k]) == (k + 10 > i));
	}
	ck_assert_uint_lt(ticks[299], 300);
	ck_assert_uint_eq(kvw_view_tokens(&views, 2), 1000);
}
END_TEST

/* A worker may claim any capacity. What was counted under an absurd one is forgotten when it comes to
 * its senses, or its view would never hold anything again. */
START_TEST(absurd_capacity_leaves_nothing_behind)
{
	static const uint64_t absurd[] = {UINT64_C(1) << 40, UINT64_C(1) << 61, UINT64_MAX};
	uint32_t last = 0;

	for (unsigned i = 0; i < 400; i++)
		(void)use_new(0, absurd[_i], 1 << 24);
	ck_assert_uint_eq(kvw_view_tokens(&views, 0), (uint64_t)400 << 24);
	for (unsigned i = 0; i < 3; i++)
		last = use_new(0, 1000, 100);
	ck_assert_uint_eq(kvw_view_tokens(&views, 0), 200); /* the first ended in a full tick */
	ck_assert(alive(0, last));
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("view");

	tcase_add_checked_fixture(tcase, setup, teardown);
	tcase_add_test(tcase, oldest_ticks_die_first);
	tcase_add_loop_test(tcase, absurd_capacity_leaves_nothing_behind, 0, 3);
	tcase_add_test(tcase, use_makes_young);
	tcase_add_test(tcase, many_ticks_move_at_once);
	tcase_add_test(tcase, purge_kills_every_tick);
	tcase_add_test(tcase, late_ledger_is_void);
	tcase_add_test(tcase, ticks_wrap_around);
	return run_tcase("radix_view", tcase);
}
