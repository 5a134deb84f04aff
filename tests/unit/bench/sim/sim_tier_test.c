/*
 * sim_tier_test.c - the simulated CPU tier: what it keeps, in which order it evicts, what it
 * reports.
 */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_tier.h"
#include "tests/unit/suite.h"

#define KEYS 64

/* What a listener to its reports believes it to hold. */
struct listener {
	bool held[KEYS];
	uint32_t places[KEYS];
	uint64_t order[256]; /* keys that came and went; evictions with the highest bit */
	uint32_t count;
};

static void on_change(void *user, bool admit, uint64_t key, uint32_t place)
{
	struct listener *l = user;

	ck_assert_uint_lt(key, KEYS);
	ck_assert_int_ne(l->held[key], admit);
	l->held[key] = admit;
	if (!admit)
		ck_assert_uint_eq(place, l->places[key]);
	for (uint64_t other = 0; other < KEYS && admit; other++)
		ck_assert(other == key || !l->held[other] || l->places[other] != place);
	l->places[key] = place;
	if (l->count < 256)
		l->order[l->count++] = admit ? key : key | UINT64_C(1) << 63;
}

static const uint64_t keys[] = {1, 2, 3, 4, 5, 6, 7, 8};

START_TEST(a_prompt_loses_its_beginning_first)
{
	struct listener l = {0};
	struct kvb_tier *tier = kvb_tier_create(4, on_change, &l);

	kvb_tier_store(tier, keys, 4);
	kvb_tier_store(tier, keys + 4, 1);
	ck_assert(!l.held[1] && l.held[2] && l.held[5]);
	ck_assert_uint_eq(l.order[4], 1 | UINT64_C(1) << 63); /* evicted before 5 came */
	ck_assert_uint_eq(l.order[5], 5);
	ck_assert_uint_eq(kvb_tier_find(tier, keys, 4), 0); /* a hole at the front */
	ck_assert_uint_eq(kvb_tier_find(tier, keys + 1, 4), 4);
	kvb_tier_destroy(tier);
}
END_TEST

START_TEST(what_was_used_stays_longer_its_beginning_longest)
{
	struct listener l = {0};
	struct kvb_tier *tier = kvb_tier_create(4, on_change, &l);

	kvb_tier_store(tier, keys, 4);
	kvb_tier_touch(tier, keys, 2);
	kvb_tier_store(tier, keys + 4, 3); /* 3, 4, then 2 */
	ck_assert(l.held[1] && !l.held[2] && !l.held[3] && !l.held[4]);
	kvb_tier_destroy(tier);
}
END_TEST

START_TEST(pinned_chunks_stay)
{
	struct listener l = {0};
	struct kvb_tier *tier = kvb_tier_create(4, on_change, &l);

	kvb_tier_store(tier, keys, 3);
	ck_assert_uint_eq(kvb_tier_pin(tier, keys, 2), 2);
	ck_assert_uint_eq(kvb_tier_pin(tier, keys + 6, 2), 0);
	kvb_tier_store(tier, keys + 3, 5); /* two places for five */
	ck_assert(l.held[1] && l.held[2] && !l.held[3]);
	ck_assert_uint_eq(kvb_tier_count(tier), 4);
	ck_assert_uint_eq(kvb_tier_clear(tier), 2);
	ck_assert_uint_eq(kvb_tier_find(tier, keys, 8), 2);
	kvb_tier_restart(tier);
	ck_assert_uint_eq(kvb_tier_count(tier), 0);
	memset(l.held, 0, sizeof(l.held)); /* a restart reports nothing */
	kvb_tier_store(tier, keys, 8);     /* and its pins are gone: the first four fit */
	ck_assert(l.held[1] && l.held[4] && !l.held[5]);
	kvb_tier_destroy(tier);
}
END_TEST

START_TEST(a_listener_knows_what_it_holds)
{
	struct listener l = {0};
	struct kvb_tier *tier = kvb_tier_create(20, on_change, &l);

	srand((unsigned)_i + 1);
	for (int i = 0; i < 3000; i++) {
		uint64_t some[8], all[20];
		uint32_t count = (uint32_t)rand() % 8, held = 0, base = (uint32_t)rand() % 57;

		for (uint32_t k = 0; k < count; k++)
			some[k] = base + k;
		if (rand() % 3 == 0)
			kvb_tier_touch(tier, some, count);
		else if (rand() % 200 == 0)
			kvb_tier_clear(tier);
		else
			kvb_tier_store(tier, some, count);
		for (uint64_t k = 0; k < KEYS; k++) {
			held += l.held[k];
			ck_assert_int_eq(l.held[k], kvb_tier_find(tier, &k, 1) == 1);
		}
		ck_assert_uint_eq(held, kvb_tier_count(tier));
		ck_assert_uint_le(held, 20);
		kvb_tier_copy(tier, all);
		for (uint32_t k = 0; k < held; k++)
			ck_assert(l.held[all[k]]);
	}
	kvb_tier_destroy(tier);
}
END_TEST

int main(void)
{
	TCase *tests = tcase_create("tier");

	tcase_add_test(tests, a_prompt_loses_its_beginning_first);
	tcase_add_test(tests, what_was_used_stays_longer_its_beginning_longest);
	tcase_add_test(tests, pinned_chunks_stay);
	tcase_add_loop_test(tests, a_listener_knows_what_it_holds, 0, 4);
	return run_tcase("sim_tier", tests);
}
