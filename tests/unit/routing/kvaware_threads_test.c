/*
 * kvaware_threads_test.c - loops that pick while a feed writes and workers lose their caches.
 *
 * Worker 0 is never chosen and never reported, so it has no hit at any moment. A thread that asked
 * for a purge finds nothing of that worker until the feed has read it again.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "support.h"
#include "tests/unit/suite.h"

#define WORKERS 6
#define LOOPS   3
#define PICKS   6000
#define PROMPTS 24
#define TOKENS  (16 * CHUNK_UNITS + 5)

struct race {
	struct kvw_strategy *strategy;
	struct kvw_exact *exact;
	struct fleet fleet;
	struct prompt prompts[PROMPTS];
	struct naming namings[PROMPTS];
	struct kvw_route_request requests[PROMPTS];
	_Atomic uint32_t learned[WORKERS]; /* how often the feed has read a worker again */
	_Atomic unsigned loops;            /* still at work */
	_Atomic uint64_t exact_hits;
};

static void make_prompts(struct race *race)
{
	for (uint32_t p = 0; p < PROMPTS; p++) {
		prompt_start(&race->prompts[p]);
		for (uint32_t c = 0; c < 17; c++)
			prompt_add(&race->prompts[p], c < 4 ? 1 : p);
		race->prompts[p].chunks[16].end = TOKENS;
		race->requests[p] = request_of(&race->prompts[p]);
		name_prompt(&race->namings[p], &race->prompts[p], TOKENS, &race->requests[p]);
	}
}

static void check_costs(const struct kvw_cost *costs)
{
	for (uint32_t w = 0; w < WORKERS; w++) {
		uint32_t sum = 0;

		for (unsigned t = 0; t < KVW_TIER_COUNT; t++)
			sum += costs[w].hit_tokens[t];
		EXPECT(sum < TOKENS);
		EXPECT(w > 0 || sum == 0);
	}
}

/* Purges a worker: until the feed has read it again its own reports count for nothing. */
static void lose(struct race *race, uint32_t worker, const struct kvw_route_request *request)
{
	const struct kvw_strategy_ops *ops = race->strategy->ops;
	uint32_t before = atomic_load(&race->learned[worker]);
	struct kvw_cost costs[WORKERS];
	struct kvw_decision d;

	ops->purge(race->strategy, worker);
	EXPECT(ops->explain(race->strategy, request, &race->fleet.set, 0, costs, &d) == KVW_OK);
	if (costs[worker].exact)
		EXPECT(atomic_load(&race->learned[worker]) != before);
}

static void *loop(void *arg)
{
	struct race *race = arg;
	const struct kvw_strategy_ops *ops = race->strategy->ops;
	uint64_t dice = (uint64_t)(uintptr_t)&dice;

	for (unsigned i = 0; i < PICKS; i++) {
		uint64_t roll = test_random(&dice);
		const struct kvw_route_request *request = &race->requests[roll % PROMPTS];
		int64_t now_ns = (int64_t)i * 1000000;
		bool bad = (roll >> 26 & 7) == 0;
		struct kvw_outcome outcome = {.status = bad ? 500 : 200,
			.completed = true,
			.unserved = bad ? request : NULL};
		struct kvw_cost costs[WORKERS];
		struct kvw_decision d;

		EXPECT(ops->pick(race->strategy, request, &race->fleet.set, now_ns, &d) == KVW_OK);
		EXPECT(d.worker_id != 0);
		if (d.exact && d.hit_tokens[KVW_TIER_DEVICE] > 0)
			atomic_fetch_add(&race->exact_hits, 1);
		ops->done(race->strategy, &d, &outcome, now_ns);
		EXPECT(ops->explain(race->strategy, request, &race->fleet.set, now_ns, costs, &d) ==
			KVW_OK);
		check_costs(costs);
		if ((roll >> 20 & 63) == 0)
			lose(race, 1 + (roll >> 30) % (WORKERS - 1), request);
	}
	atomic_fetch_sub(&race->loops, 1);
	return NULL;
}

/* What a feed does: purges first, then events. */
static void feed_turn(struct race *race, uint64_t *dice)
{
	uint32_t purged[WORKERS];
	size_t count = kvw_exact_purges(race->exact, purged, WORKERS);

	for (size_t i = 0; i < count; i++) {
		atomic_fetch_add(&race->learned[purged[i]], 1);
		kvw_exact_set_coverage(race->exact, purged[i], KVW_REPORTER_ENGINE, KVW_COVERAGE_FULL);
	}
	for (unsigned i = 0; i < 16; i++) {
		uint64_t roll = test_random(dice);
		const struct naming *naming = &race->namings[roll % PROMPTS];
		enum kvw_reporter reporter = (enum kvw_reporter)(roll >> 8 & 1);
		uint32_t worker = 1 + (roll >> 16) % (WORKERS - 1);
		uint32_t cut = (roll >> 24) % naming->chains[reporter].count;

		if ((roll >> 40 & 3) != 0)
			report_stored(race->exact, worker, &naming->chains[reporter], KVW_TIER_DEVICE,
				0, cut);
		else
			report_removed(race->exact, worker, &naming->chains[reporter], KVW_TIER_DEVICE,
				cut, naming->chains[reporter].count - cut);
	}
	(void)kvw_exact_tick(race->exact, 0, purged, 0);
}

START_TEST(loops_feed_and_purges)
{
	struct kvw_strategy_options options = test_options();
	struct race *race = calloc(1, sizeof(*race));
	pthread_t threads[LOOPS];
	struct kvw_strategy_stats stats;
	uint64_t dice = 5;

	ck_assert_ptr_nonnull(race);
	options.index_bytes = 1 << 20;
	ck_assert_int_eq(kvw_strategy_find("kvaware")->create(&options, &race->strategy), KVW_OK);
	race->exact = race->strategy->ops->exact(race->strategy);
	race->loops = LOOPS;
	fleet_init(&race->fleet, WORKERS);
	race->fleet.items[0].usable = false;
	make_prompts(race);
	for (uint32_t w = 0; w < WORKERS; w++)
		for (unsigned t = 0; t < KVW_REPORTER_COUNT; t++)
			kvw_exact_set_coverage(race->exact, w, (enum kvw_reporter)t, KVW_COVERAGE_FULL);
	for (unsigned i = 0; i < LOOPS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, loop, race), 0);
	while (atomic_load(&race->loops) > 0)
		feed_turn(race, &dice);
	for (unsigned i = 0; i < LOOPS; i++)
		ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
	ck_assert_uint_gt(atomic_load(&race->exact_hits), PICKS / 10);
	race->strategy->ops->stats(race->strategy, &stats);
	ck_assert_uint_le(stats.exact_bytes, stats.exact_bytes_limit);
	race->strategy->ops->destroy(race->strategy);
	fleet_finish(&race->fleet);
	free(race);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("threads");

	tcase_add_test(tcase, loops_feed_and_purges);
	tcase_set_timeout(tcase, 240);
	return run_tcase("kvaware_threads", tcase);
}
