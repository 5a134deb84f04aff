/*
 * prefixaware_threads_test.c - everything that happens to the strategy at once, on a tree that is too
 * small for it: picks with their inserts, leases, answers, explanations, purges, restarts of
 * workers, statistics, ageing and eviction.
 *
 * Correct here means: no race that ThreadSanitizer sees, every decision within its set, no load left
 * when all leases are back, and a sound tree when all is over.
 */
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "routing/prefixaware.h"
#include "support.h"
#include "tests/unit/steps.h"
#include "tests/unit/suite.h"

#define PICKERS 3
#define LEASES  8
#define MS      INT64_C(1000000)

#define ROUNDS (KVT_TEST_SEES_RACES ? 3000 : 15000)

struct shared {
	struct kvw_strategy *strategy;
	struct fleet fleet;
	_Atomic bool stop;
};

struct picker {
	struct shared *shared;
	uint64_t seed;
	uint64_t hits;
	uint64_t wrong;
};

/* A request that was picked and is not answered yet. */
struct pending {
	struct kvw_lease lease;
	struct kvw_decision decision;
	struct prompt prompt;
};

/* Few beginnings, many ends, branches inside runs. */
static void random_prompt(struct prompt *p, uint64_t *dice)
{
	uint64_t n = test_random(dice) % 30000;
	uint64_t length = 1 + n * 7 % 60;

	prompt_start(p);
	for (uint64_t k = 0; k < length; k++)
		prompt_add(p, k < 3 ? 0 : k < 12 ? n % 13 : k < 31 ? n % 700 : n);
}

/* Answered as predicted, with an error, cut short, or with less cached than was predicted. */
static void finish(struct kvw_strategy *strategy, struct pending *p, uint64_t *dice, int64_t now_ns)
{
	struct kvw_outcome outcome = {.status = 200, .streamed = true};
	uint32_t predicted = p->decision.hit_tokens[KVW_TIER_DEVICE];

	struct kvw_route_request request = request_of(&p->prompt);

	if (p->lease.load == NULL)
		return;
	if (test_random(dice) % 8 == 0) {
		outcome.status = 500;
		outcome.unserved = &request;
	} else if (test_random(dice) % 8 != 0) {
		kvw_lease_first_token(&p->lease, now_ns);
		outcome.first_token = true;
		outcome.completed = true;
		outcome.prompt_known = true;
		outcome.cached_known = true;
		outcome.prompt_tokens = p->decision.prompt_tokens;
		outcome.cached_tokens = test_random(dice) % 8 == 0 ? predicted / 2 : predicted;
		outcome.first_token_ns = p->decision.prefill_ns + MS;
		outcome.ahead_ns = p->lease.ahead_ns;
		outcome.behind_ns = p->lease.behind_ns;
		outcome.served_ns = p->lease.served_ns;
	}
	strategy->ops->done(strategy, &p->decision, &outcome, now_ns);
	kvw_lease_release(&p->lease, now_ns);
}

static void *run_picker(void *arg)
{
	struct picker *picker = arg;
	struct shared *shared = picker->shared;
	struct kvw_strategy *strategy = shared->strategy;
	size_t count = shared->fleet.set.count;
	struct kvw_candidate *items = calloc(count, sizeof(*items));
	struct kvw_cost *costs = calloc(count, sizeof(*costs));
	struct kvw_candidates set = {items, count, shared->fleet.board, 0};
	struct pending *pending = calloc(LEASES, sizeof(*pending));

	EXPECT(items != NULL && costs != NULL && pending != NULL);
	memcpy(items, shared->fleet.items, count * sizeof(*items));
	for (unsigned i = 0; i < ROUNDS; i++) {
		struct pending *one = &pending[i % LEASES];
		struct kvw_route_request request;
		struct kvw_decision told;

		finish(strategy, one, &picker->seed, i * MS);
		random_prompt(&one->prompt, &picker->seed);
		request = request_of(&one->prompt);
		if (i % 64 == 0)
			items[test_random(&picker->seed) % count].generation++;
		if (i % 16 == 0 && strategy->ops->explain(strategy, &request, &set, i * MS, costs,
					   &told) != KVW_OK)
			picker->wrong++;
		if (strategy->ops->pick(strategy, &request, &set, i * MS, &one->decision) !=
				KVW_OK ||
			one->decision.pos >= count ||
			one->decision.hit_tokens[KVW_TIER_DEVICE] > one->decision.prompt_tokens) {
			picker->wrong++;
			continue;
		}
		picker->hits += one->decision.hit_tokens[KVW_TIER_DEVICE] > 0;
		kvw_lease_take(&one->lease, items[one->decision.pos].load, one->decision.prefill_ns,
			i * MS);
	}
	for (unsigned i = 0; i < LEASES; i++)
		finish(strategy, &pending[i], &picker->seed, ROUNDS * MS);
	free(pending);
	free(costs);
	free(items);
	return NULL;
}

static void *run_purger(void *arg)
{
	struct shared *shared = arg;
	struct kvw_strategy *strategy = shared->strategy;
	struct kvw_strategy_stats stats;
	struct kvw_worker_learned learned;
	uint64_t dice = 99;

	while (!atomic_load(&shared->stop)) {
		uint32_t worker = (uint32_t)(test_random(&dice) % shared->fleet.set.count);

		strategy->ops->purge(strategy, worker);
		strategy->ops->learned(strategy, worker, &learned);
		strategy->ops->stats(strategy, &stats);
		for (unsigned i = 0; i < 50; i++)
			(void)sched_yield();
	}
	return NULL;
}

static void race(size_t workers, uint64_t capacity)
{
	const struct kvw_strategy_ops *ops = kvw_strategy_find("prefixaware");
	struct kvw_strategy_options options = test_options();
	struct shared *shared = calloc(1, sizeof(*shared));
	struct kvw_strategy_stats stats = {0};
	struct picker pickers[PICKERS];
	pthread_t threads[PICKERS + 1];
	uint64_t hits = 0;

	ck_assert(ops != NULL && shared != NULL);
	options.tree_bytes = 1 << 20;
	fleet_init(&shared->fleet, workers);
	for (size_t i = 0; i < workers; i++)
		shared->fleet.items[i].capacity_tokens = capacity;
	ck_assert_int_eq(ops->create(&options, &shared->strategy), KVW_OK);
	ck_assert_int_eq(pthread_create(&threads[PICKERS], NULL, run_purger, shared), 0);
	for (unsigned i = 0; i < PICKERS; i++) {
		pickers[i] = (struct picker){.shared = shared, .seed = i + 1};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run_picker, &pickers[i]), 0);
	}
	for (unsigned i = 0; i < PICKERS; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_uint_eq(pickers[i].wrong, 0);
		hits += pickers[i].hits;
	}
	atomic_store(&shared->stop, true);
	pthread_join(threads[PICKERS], NULL);
	ck_assert_uint_gt(hits, ROUNDS / 10);
	for (size_t i = 0; i < workers; i++) {
		ck_assert_uint_eq(kvw_load_inflight(&shared->fleet.loads[i]), 0);
		ck_assert_int_eq(kvw_load_queue_ns(&shared->fleet.loads[i], ROUNDS * MS), 0);
	}
	tree_check(kvw_prefixaware_tree((struct kvw_prefixaware *)shared->strategy));
	shared->strategy->ops->stats(shared->strategy, &stats);
	ck_assert_uint_gt(stats.evicted_chunks, ROUNDS);
	ck_assert_uint_gt(stats.purges, ROUNDS / 64);
	ops->destroy(shared->strategy);
	fleet_finish(&shared->fleet);
	free(shared);
}

START_TEST(all_at_once_with_four_workers)
{
	race(4, 2000 * CHUNK_UNITS);
}
END_TEST

START_TEST(all_at_once_with_1024_workers)
{
	race(KVW_MAX_WORKERS, 100 * CHUNK_UNITS);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("threads");

	tcase_add_test(tcase, all_at_once_with_four_workers);
	tcase_add_test(tcase, all_at_once_with_1024_workers);
	tcase_set_timeout(tcase, 240);
	return run_tcase("prefixaware_threads", tcase);
}
