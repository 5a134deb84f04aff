/*
 * radix_threads_test.c - loops that find, insert, purge and evict in one small tree at once.
 *
 * Correct here means: no race that ThreadSanitizer sees, no reach beyond what was ever inserted,
 * and a sound tree when all is over (every slot accounted for, references and views exact).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

#include "routing/radix_node.h"
#include "routing/spin.h"
#include "support.h"
#include "tests/unit/steps.h"
#include "tests/unit/suite.h"

#define THREADS 4
#define WORKERS 24
#define MS      INT64_C(1000000)

#define ROUNDS (60000 / KVT_TEST_SHARE)
#define DUELS  (20000 / KVT_TEST_SHARE) /* each waits for the other thread twice: a time slice on a busy machine */

struct loop {
	struct kvw_radix *tree;
	uint64_t seed;
	unsigned prompts;           /* variety: few prompts fight for nodes, many for memory */
	uint64_t capacity;          /* tokens of each worker */
	_Atomic uint32_t *inserted; /* [WORKERS] bit p: prompt with root p was inserted */
	uint64_t wrong;
};

/* Prompt n of the variety: beginnings are shared in steps, lengths vary. */
static void variety(struct prompt *p, uint64_t n)
{
	uint64_t length = 1 + n * 7 % 45;

	prompt_start(p);
	for (uint64_t k = 0; k < length; k++)
		prompt_add(p, k < 5 ? n % 3 : k < 20 ? n % 11 : n);
}

static void *run_loop(void *arg)
{
	struct loop *loop = arg;
	uint64_t dice = loop->seed;
	struct prompt p;

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint32_t worker = (uint32_t)(test_random(&dice) % WORKERS);
		uint64_t n = test_random(&dice) % loop->prompts;
		uint32_t seen = 0;

		variety(&p, n);
		seen = tree_reach(loop->tree, &p, worker);
		if (seen > p.count)
			loop->wrong++;
		/* Roots are three: a worker that never saw one cannot hold it. */
		if (seen > 0 && (atomic_load(&loop->inserted[worker]) >> n % 3 & 1) == 0)
			loop->wrong++;
		atomic_fetch_or(&loop->inserted[worker], 1u << n % 3);
		tree_insert(loop->tree, &p, worker, loop->capacity, i * MS);
		if (test_random(&dice) % 1000 == 0)
			kvw_radix_purge(loop->tree, worker);
	}
	return NULL;
}

/* evicts: whether there are more prompts than memory, or than the workers may hold. */
static void race(unsigned prompts, uint64_t capacity, uint64_t bytes, bool evicts)
{
	struct kvw_radix_options options = {.bytes = bytes, .seed = 3};
	_Atomic uint32_t inserted[WORKERS] = {0};
	struct loop loops[THREADS];
	pthread_t threads[THREADS];
	struct kvw_strategy_stats stats = {0};
	struct kvw_radix *tree = NULL;
	uint64_t wrong = 0;

	ck_assert_int_eq(kvw_radix_create(&options, &tree), KVW_OK);
	for (unsigned i = 0; i < THREADS; i++) {
		loops[i] = (struct loop){
			.tree = tree,
			.seed = i + 1,
			.prompts = prompts,
			.capacity = capacity,
			.inserted = inserted,
		};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run_loop, &loops[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		wrong += loops[i].wrong;
	}
	/* An eviction that races with a reader may show it a foreign holder, once in a while. */
	ck_assert_uint_le(wrong, THREADS * ROUNDS / 10000);
	tree_check(tree);
	kvw_radix_stats(tree, &stats);
	ck_assert_uint_gt(stats.purges, 0);
	ck_assert(!evicts || stats.evicted_chunks > ROUNDS);
	kvw_radix_destroy(tree);
}

START_TEST(threads_on_few_prompts)
{
	race(12, 1000000, 1 << 20, false);
}
END_TEST

START_TEST(threads_with_ageing)
{
	race(300, 500 * CHUNK_UNITS, 4 << 20, false);
}
END_TEST

START_TEST(threads_at_the_byte_limit)
{
	race(100000, 1000000, 1 << 20, true);
}
END_TEST

START_TEST(threads_with_ageing_at_the_byte_limit)
{
	race(5000, 300 * CHUNK_UNITS, 1 << 20, true);
}
END_TEST

/* A node that one thread comes to hold while another finds that none does, and drops it. */
struct duel {
	struct kvw_radix *tree;
	struct prompt prompt;
	uint32_t node;
	_Atomic uint32_t round; /* that the holder may begin */
	_Atomic uint32_t ready; /* that it is ready for */
	_Atomic uint32_t held;  /* that it is through with */
	bool was_there;         /* what kvw_node_hold returned */
};

static void wait_for(_Atomic uint32_t *counter, uint32_t value)
{
	for (unsigned turns = 1; atomic_load(counter) != value; turns++)
		if (turns % KVW_SPIN_TURNS == 0) /* yielding alone takes a time slice on a busy machine */
			nanosleep(&(struct timespec){.tv_nsec = 1000}, NULL);
}

/* Puts off one side by a little that differs from time to time; on a single processor, too. */
static void pause_some(uint64_t *dice)
{
	uint64_t n = test_random(dice) % 64;

	if (n == 0)
		sched_yield();
	for (; n > 0; n--)
		kvw_spin_pause();
}

static void *hold_each_round(void *arg)
{
	struct duel *duel = arg;
	struct kvw_pool *pool = kvw_pool_mine(duel->tree);
	struct kvw_ledger ledger;
	uint64_t dice = 1;

	for (uint32_t i = 1; i <= DUELS; i++) {
		atomic_store(&duel->ready, i);
		wait_for(&duel->round, i);
		pause_some(&dice);
		kvw_ledger_open(&ledger, &duel->tree->views, 1, 1000000);
		duel->was_there = kvw_node_hold(
			duel->tree, pool, duel->node, 1, duel->prompt.chunks[0].hash, i, &ledger);
		kvw_ledger_close(&ledger);
		atomic_store(&duel->held, i);
	}
	return NULL;
}

START_TEST(a_node_is_held_or_dropped)
{
	struct kvw_radix_options options = {.bytes = 1 << 20, .seed = 3};
	struct kvw_radix_path path;
	struct duel duel = {0};
	struct kvw_pool *pool = NULL;
	uint32_t dropped = 0;
	uint64_t dice = 2;
	pthread_t holder;

	ck_assert_int_eq(kvw_radix_create(&options, &duel.tree), KVW_OK);
	pool = kvw_pool_mine(duel.tree);
	prompt_start(&duel.prompt);
	prompt_add(&duel.prompt, 5);
	ck_assert_int_eq(pthread_create(&holder, NULL, hold_each_round, &duel), 0);
	for (uint32_t i = 1; i <= DUELS; i++) {
		struct kvw_swept swept = {.count = 1};

		wait_for(&duel.ready, i);
		tree_insert(duel.tree, &duel.prompt, 0, 1000000, i * MS);
		kvw_radix_purge(duel.tree, 0);
		kvw_radix_purge(duel.tree, 1);
		kvw_radix_find(duel.tree, duel.prompt.chunks, 1, &path);
		EXPECT(path.count == 1);
		duel.node = path.steps[0].node;
		swept.nodes[0] = duel.node;
		atomic_store(&duel.round, i);
		pause_some(&dice);
		kvw_radix_drop(duel.tree, pool, &swept);
		wait_for(&duel.held, i);
		kvw_radix_find(duel.tree, duel.prompt.chunks, 1, &path);
		dropped += path.count == 0;
		/* Held and then dropped, the worker's view would miss it, too. */
		EXPECT((kvw_radix_view_tokens(duel.tree, 1) > 0) ==
			(path.count > 0 && duel.was_there));
	}
	pthread_join(holder, NULL);
	ck_assert_uint_gt(dropped, 0);
	ck_assert_uint_lt(dropped, DUELS);
	tree_check(duel.tree);
	kvw_radix_destroy(duel.tree);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("threads");

	tcase_add_test(tcase, threads_on_few_prompts);
	tcase_add_test(tcase, threads_with_ageing);
	tcase_add_test(tcase, threads_at_the_byte_limit);
	tcase_add_test(tcase, threads_with_ageing_at_the_byte_limit);
	tcase_add_test(tcase, a_node_is_held_or_dropped);
	tcase_set_timeout(tcase, 240);
	return run_tcase("radix_threads", tcase);
}
