/*
 * evict_test.c - hit rates on made workloads, through the index: under the optimum, and as they were.
 *
 * The golden rates are of this code; a change that moves one by more than 2 % is meant to say so
 * here. They do not depend on the machine.
 */
#include "bench/evict/evict_made.h"
#include "bench/evict/evict_run.h"
#include "support.h"
#include "tests/unit/steps.h"
#include "tests/unit/suite.h"

static const uint32_t rooms[] = {1000, 4000, 10000};

/* A sanitizer sees the same code with each room and each workload: two workloads under all policies are enough for it. */
static const size_t rooms_tried = KVT_TEST_SHARE > 1 ? 1 : sizeof(rooms) / sizeof(rooms[0]);

static double rate(const struct kvb_evict_result *r)
{
	return (double)r->hit / (double)r->asked;
}

static double rate_of(const struct kvb_trace *trace, const char *policy, uint32_t chunks)
{
	struct kvb_evict_result r;

	ck_assert_int_eq(kvb_evict_run(trace, policy, chunks, &r), KVT_OK);
	ck_assert_uint_eq(r.refused, 0);
	return rate(&r);
}

/* Requests of the optimum tests: small enough to see by hand. */
static struct kvb_trace small_trace(struct kvb_trace_row *rows, size_t count)
{
	return (struct kvb_trace){.rows = rows, .count = count};
}

START_TEST(test_optimum_by_hand)
{
	uint64_t a[] = {1, 2, 3}, b[] = {1, 4}, c[] = {5}, d[] = {1, 2, 3};
	struct kvb_trace_row rows[] = {{.ids = a, .id_count = 3}, {.ids = b, .id_count = 2},
		{.ids = c, .id_count = 1}, {.ids = d, .id_count = 3}};
	const struct kvb_trace trace = small_trace(rows, 4);
	/* 1 chunk: 1 stays, two hits. 2: 1 and 2, three. 3: all of d, four. */
	static const uint64_t hits[] = {2, 3, 4, 4};
	struct kvb_evict_result r;

	for (uint32_t room = 1; room <= 4; room++) {
		kvb_evict_optimum(&trace, room, &r);
		ck_assert_uint_eq(r.asked, 9);
		ck_assert_uint_eq(r.hit, hits[room - 1]);
	}
}
END_TEST

/* No policy is above the optimum, and the optimum grows with room. */
START_TEST(test_bounds)
{
	struct kvb_trace trace;
	double before = 0;

	kvb_made_trace(&kvb_made[_i], 1, &trace);
	for (size_t i = 0; i < 2 && i < rooms_tried; i++) {
		struct kvb_evict_result best;

		kvb_evict_optimum(&trace, rooms[i], &best);
		ck_assert(rate(&best) >= before);
		before = rate(&best);
		for (const char *const *name = kvt_policy_names(); *name != NULL; name++)
			ck_assert_msg(rate_of(&trace, *name, rooms[i]) <= rate(&best), "%s", *name);
	}
	kvb_trace_finish(&trace);
}
END_TEST

/* With room for everything all are alike, and as good as can be. */
START_TEST(test_room_for_all)
{
	struct kvb_evict_result best;
	struct kvb_trace trace;
	uint64_t distinct, longest;

	kvb_made_trace(kvb_made_find("documents"), 1, &trace);
	kvb_evict_count(&trace, &distinct, &longest);
	kvb_evict_optimum(&trace, (uint32_t)distinct, &best);
	for (const char *const *name = kvt_policy_names(); *name != NULL; name++)
		ck_assert(rate_of(&trace, *name, (uint32_t)distinct) == rate(&best));
	kvb_trace_finish(&trace);
}
END_TEST

static const struct {
	const char *policy;
	double rates[3]; /* chat, seed 1, by rooms */
} golden[] = {
	{"lru", {0.1729, 0.3554, 0.5310}},
	{"lfu", {0.1834, 0.3649, 0.5283}},
	{"fifo", {0.1735, 0.3580, 0.5323}},
	{"arc", {0.2018, 0.4011, 0.5394}},
	{"s3fifo", {0.1814, 0.3178, 0.4678}},
	{"wtinylfu", {0.1874, 0.3375, 0.4861}},
	{"cost", {0.1681, 0.3151, 0.4819}},
	{"density", {0.2177, 0.4519, 0.5689}},
};

START_TEST(test_golden)
{
	struct kvb_trace trace;

	kvb_made_trace(kvb_made_find("chat"), 1, &trace);
	for (size_t i = 0; i < rooms_tried; i++) {
		const double now = rate_of(&trace, golden[_i].policy, rooms[i]);
		const double ratio = now / golden[_i].rates[i];

		ck_assert_msg(ratio > 0.98 && ratio < 1.02, "%s with room for %u: %.4f, was %.4f",
			golden[_i].policy, rooms[i], now, golden[_i].rates[i]);
	}
	kvb_trace_finish(&trace);
}
END_TEST

/* What the default is chosen for: at least LRU everywhere, and much above it under a flood. */
START_TEST(test_default_compared_with_lru)
{
	struct kvb_trace trace;

	kvb_made_trace(&kvb_made[_i], 2, &trace);
	for (size_t i = 0; i < rooms_tried; i++) {
		const double lru = rate_of(&trace, "lru", rooms[i]);
		const double ours = rate_of(&trace, "default", rooms[i]);

		ck_assert_msg(
			ours > 0.995 * lru, "%s: %.4f, lru %.4f", kvb_made[_i].name, ours, lru);
		if (i == 0)
			ck_assert_msg(ours > 1.2 * lru, "%s: %.4f, lru %.4f", kvb_made[_i].name,
				ours, lru);
	}
	kvb_trace_finish(&trace);
}
END_TEST

int main(void)
{
	TCase *all = tcase_create("evict");
	int made = 0;

	while (kvb_made[made].name != NULL)
		made++;
	tcase_set_timeout(all, 280);
	tcase_add_test(all, test_optimum_by_hand);
	if (KVT_TEST_SHARE > 1) {
		tcase_add_loop_test(all, test_bounds, 0, 2);
		return run_tcase("evict", all);
	}
	tcase_add_loop_test(all, test_bounds, 0, made);
	tcase_add_test(all, test_room_for_all);
	tcase_add_loop_test(all, test_golden, 0, (int)(sizeof(golden) / sizeof(golden[0])));
	tcase_add_loop_test(all, test_default_compared_with_lru, 0, made);
	return run_tcase("evict", all);
}
