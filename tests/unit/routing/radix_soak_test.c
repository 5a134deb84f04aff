/*
 * radix_soak_test.c - inserts at the byte limit for as long as one likes: nothing grows.
 *
 * Two threads insert prompts of a population that changes, for workers that come, restart and go:
 * half of them small enough to age all the time, the others so large that only the limit in bytes
 * makes room. From a tenth of the inserts on the process's resident memory stays within one percent,
 * although new worker ids come all the time, and at the end every slot of the tree is accounted
 * for.
 *
 * SOAK_INSERTS in the environment says how many (300,000); tests/soak.sh runs 50 million.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "routing/radix_node.h"
#include "support.h"
#include "tests/unit/steps.h"
#include "tests/unit/suite.h"

#define THREADS     2
#define DEFAULT     (300000 / KVT_TEST_SHARE)
#define LONG        5000000 /* inserts from which on the tree is large */
#define SMALL_BYTES (UINT64_C(2) << 20)
#define LARGE_BYTES (UINT64_C(32) << 20)
#define ACTIVE      96  /* workers at a time */
#define STAY        300 /* inserts between two removals; in a large tree */
#define LONG_STAY   4800
#define LOOKS       20
#define INSERT_NS   100000

struct soak {
	struct kvw_radix *tree;
	uint64_t inserts;
	uint64_t bytes;
	uint64_t stay; /* inserts between two removals */
	_Atomic uint64_t done;
};

struct loop {
	struct soak *soak;
	unsigned number;
	uint64_t purges; /* of the first loop, which alone removes */
};

/* Resident memory of this process without what is mapped from files, in KB, exactly (statm lags
 * behind); 0: unknown. */
static uint64_t resident_kb(void)
{
	FILE *file = fopen("/proc/self/smaps_rollup", "r");
	unsigned long kb = 0;
	char line[256];

	if (file == NULL)
		return 0;
	while (kb == 0 && fgets(line, sizeof(line), file) != NULL)
		(void)sscanf(line, "Anonymous: %lu kB", &kb);
	fclose(file);
	return kb;
}

/* A tenant's system prompt, then a conversation of its own. Tenants are replaced all the time. */
static void make_prompt(struct prompt *p, uint64_t now, uint64_t generation, uint64_t *dice)
{
	uint64_t tenant = test_random(dice) % 200 + now / generation * 20;
	uint64_t talk = tenant * 5000 + test_random(dice) % 4000 + now / generation * 64;
	unsigned turns = (unsigned)(test_random(dice) % 30);

	prompt_start(p);
	for (unsigned k = 0; k < 4 + tenant % 17; k++)
		prompt_add(p, tenant);
	for (unsigned k = 0; k < turns; k++)
		prompt_add(p, talk);
	prompt_add(p, test_random(dice));
}

/* One of those that are there now; each stays for ACTIVE removals. */
static uint32_t worker_at(uint64_t removed, uint64_t *dice)
{
	return (uint32_t)((removed + test_random(dice) % ACTIVE) % KVW_MAX_WORKERS);
}

static void *run_loop(void *arg)
{
	struct loop *loop = arg;
	struct soak *soak = loop->soak;
	uint64_t dice = loop->number + 1;
	uint64_t removed = 0;
	struct prompt p;

	for (uint64_t i = 0; i < soak->inserts / THREADS; i++) {
		uint64_t now = atomic_fetch_add(&soak->done, 1);
		uint64_t gone = now / soak->stay;
		uint32_t worker = worker_at(gone, &dice);

		/* Removed for good, and now and then restarted. */
		for (; loop->number == 0 && removed < gone; removed++) {
			kvw_radix_purge(soak->tree, (uint32_t)(removed % KVW_MAX_WORKERS));
			loop->purges++;
			if (removed % 8 == 0) {
				kvw_radix_purge(soak->tree, worker);
				loop->purges++;
			}
		}
		make_prompt(&p, now, soak->inserts / 2000 + 1, &dice);
		tree_insert(soak->tree, &p, worker,
			worker % 2 == 0 ? soak->bytes / 200 : UINT64_C(1000000000),
			(int64_t)now * INSERT_NS);
	}
	return NULL;
}

/* What one look at the running soak saw. */
struct look {
	uint64_t done;
	uint64_t resident_kb;
	struct kvw_strategy_stats stats;
};

static void wait_and_look(struct soak *soak, uint64_t until, struct look *look)
{
	while (atomic_load(&soak->done) < until)
		usleep(1000);
	look->done = atomic_load(&soak->done);
	look->resident_kb = resident_kb();
	kvw_radix_stats(soak->tree, &look->stats);
	EXPECT(look->stats.bytes <= soak->bytes);
}

static void tell(const struct look *looks)
{
	fprintf(stderr, "%12s %12s %12s %10s %14s %10s\n", "inserts", "resident KB", "tree KB",
		"nodes", "evicted chunks", "purges");
	for (unsigned i = 0; i < LOOKS; i++)
		fprintf(stderr, "%12llu %12llu %12llu %10llu %14llu %10llu\n",
			(unsigned long long)looks[i].done, (unsigned long long)looks[i].resident_kb,
			(unsigned long long)looks[i].stats.bytes >> 10,
			(unsigned long long)looks[i].stats.nodes,
			(unsigned long long)looks[i].stats.evicted_chunks,
			(unsigned long long)looks[i].stats.purges);
}

/* Looks 2 to LOOKS are at a tenth of all inserts and later. */
static void check_flat(const struct look *looks, const struct soak *soak)
{
	uint64_t low = UINT64_MAX;
	uint64_t high = 0;

	for (unsigned i = 1; i < LOOKS; i++) {
		low = looks[i].resident_kb < low ? looks[i].resident_kb : low;
		high = looks[i].resident_kb > high ? looks[i].resident_kb : high;
		ck_assert_uint_gt(looks[i].stats.bytes, soak->bytes * 9 / 10);
	}
	/* The sanitizers' own memory counts as ours. */
	if (KVT_TEST_SHARE == 1)
		ck_assert_uint_le(high - low, low / 100);
	ck_assert_uint_gt(looks[LOOKS - 1].stats.evicted_chunks, soak->inserts / 10);
}

/* The loop that removes has seen at least its own inserts go by, and every removal counts. */
static void check_purges(const struct soak *soak, const struct loop *remover)
{
	struct kvw_strategy_stats stats;

	kvw_radix_stats(soak->tree, &stats);
	ck_assert_uint_eq(stats.purges, remover->purges);
	ck_assert_uint_ge(remover->purges, (soak->inserts / THREADS - 1) / soak->stay);
}

START_TEST(memory_is_flat_at_the_limit)
{
	const char *wish = getenv("SOAK_INSERTS");
	struct soak soak = {.inserts = wish != NULL ? strtoull(wish, NULL, 10) : DEFAULT};
	struct kvw_radix_options options = {.seed = 17};
	struct loop loops[THREADS];
	pthread_t threads[THREADS];
	struct look looks[LOOKS];

	ck_assert_uint_ge(soak.inserts, DEFAULT / 10);
	soak.bytes = options.bytes = soak.inserts < LONG ? SMALL_BYTES : LARGE_BYTES;
	soak.stay = soak.inserts < LONG ? STAY : LONG_STAY;
	ck_assert_int_eq(kvw_radix_create(&options, &soak.tree), KVW_OK);
	for (unsigned i = 0; i < THREADS; i++) {
		loops[i] = (struct loop){.soak = &soak, .number = i};
		ck_assert_int_eq(pthread_create(&threads[i], NULL, run_loop, &loops[i]), 0);
	}
	for (unsigned i = 0; i < LOOKS; i++)
		wait_and_look(&soak, soak.inserts / THREADS * THREADS * (i + 1) / LOOKS, &looks[i]);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	if (wish != NULL)
		tell(looks);
	check_flat(looks, &soak);
	check_purges(&soak, &loops[0]);
	tree_check(soak.tree);
	for (uint32_t w = 0; w < KVW_MAX_WORKERS; w++)
		kvw_radix_purge(soak.tree, w);
	tree_check(soak.tree);
	kvw_radix_destroy(soak.tree);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("soak");

	tcase_add_test(tcase, memory_is_flat_at_the_limit);
	tcase_set_timeout(tcase, 0);
	return run_tcase("radix_soak", tcase);
}
