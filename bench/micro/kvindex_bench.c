/*
 * kvindex_bench.c - how fast the index of KV blocks takes events and matches chains.
 *
 * 64 workers. Prompts are chains of 64 blocks: the first ones are a system prompt, of which there
 * are a few and which every worker holds, the others are the prompt's own and one worker holds
 * them. Three shapes: all 64 blocks are shared by all workers; 16 are, and the prompts' own ones
 * make a million blocks; and the same with few prompts, so that all lies in the caches.
 *
 * events   BlockStored of one prompt's own 48 blocks, and the BlockRemoved of the oldest one's, as an
 *          engine with a full cache publishes them; each block of either is one event
 * repeats  BlockStored of blocks that the worker holds already
 * matches  one chain over all workers, alone and while a thread applies events
 *
 * Each figure is the median of the rounds. JSON lines on standard output, a table on standard error.
 * Arguments: -s SECONDS per run, -r ROUNDS.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "routing/kvindex.h"
#include "bench/timing.h"

#define WORKERS    64
#define CHAIN      64 /* blocks */
#define BLOCK      16 /* tokens */
#define PREFIXES   4  /* system prompts */
#define MAX_ROUNDS 99
#define BATCH      32 /* matches between two looks at the clock */

struct shape {
	const char *note;
	uint32_t shared;  /* leading blocks that every worker holds */
	uint32_t prompts; /* prompts that a worker holds at a time */
};

struct bench {
	const struct shape *shape;
	struct kvw_kvindex *index;
	struct kvw_kvindex_hits hits;
	uint64_t first, next; /* numbers of the prompts that are held */
	uint64_t random;
	atomic_bool over;
};

enum figure { EVENTS, REPEATS, MATCHES, MATCHES_WHILE_WRITING, MATCHED, FIGURES };

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
	return x ^ x >> 31;
}

static uint64_t next_random(struct bench *bench)
{
	bench->random += UINT64_C(0x9E3779B97F4A7C15);
	return mix(bench->random);
}

/* Makes the keys of a prompt's blocks first to CHAIN; they are the engine's hashes, too. */
static void keys_of(const struct bench *bench, uint64_t prompt, uint32_t first, uint64_t *keys)
{
	for (uint32_t i = first; i < CHAIN; i++)
		*keys++ = i < bench->shape->shared ? mix((prompt % PREFIXES + 1) << 8 | i)
						   : mix((prompt + 1) << 20 | i);
}

/* --- events --- */

static void store(
	struct bench *bench, uint64_t prompt, uint32_t first, uint32_t end, uint32_t worker)
{
	uint64_t keys[CHAIN];
	struct kvw_kvindex_blocks blocks = {1, KVW_TIER_DEVICE, end - first, keys, keys};

	keys_of(bench, prompt, first, keys);
	kvw_kvindex_stored(bench->index, (struct kvw_kvindex_from){worker, 0}, &blocks);
}

static void drop(struct bench *bench, uint64_t prompt)
{
	uint32_t first = bench->shape->shared;
	uint64_t keys[CHAIN];
	struct kvw_kvindex_blocks blocks = {1, KVW_TIER_DEVICE, CHAIN - first, keys, NULL};

	keys_of(bench, prompt, first, keys);
	kvw_kvindex_removed(
		bench->index, (struct kvw_kvindex_from){(uint32_t)(prompt % WORKERS), 0}, &blocks);
}

/* Replaces the oldest prompt by a new one. Returns the number of events. */
static uint64_t turn_over(struct bench *bench)
{
	uint64_t prompt = bench->next++;

	drop(bench, bench->first++);
	store(bench, prompt, bench->shape->shared, CHAIN, (uint32_t)(prompt % WORKERS));
	return 2 * (CHAIN - bench->shape->shared);
}

static uint64_t repeat(struct bench *bench)
{
	uint64_t random = next_random(bench);

	store(bench, random, 0, bench->shape->shared, (uint32_t)(random >> 32) % WORKERS);
	return bench->shape->shared;
}

static uint64_t match(struct bench *bench)
{
	uint64_t held = bench->shape->prompts;
	uint64_t prompt = bench->first + next_random(bench) % held;
	uint64_t keys[CHAIN];

	keys_of(bench, prompt, 0, keys);
	kvw_kvindex_match(bench->index, 1, keys, CHAIN, BLOCK, &bench->hits);
	return 1;
}

static double rate(struct bench *bench, uint64_t (*run)(struct bench *), double seconds)
{
	double start = kvb_seconds();
	double taken = 0;
	uint64_t done = 0;

	while (taken < seconds) {
		for (unsigned i = 0; i < BATCH; i++)
			done += run(bench);
		taken = kvb_seconds() - start;
	}
	return (double)done / taken;
}

static void *write_at_full_speed(void *arg)
{
	struct bench *bench = arg;

	while (!atomic_load_explicit(&bench->over, memory_order_relaxed))
		(void)turn_over(bench);
	return NULL;
}

/* Returns matches per second while a writer runs at full speed; reader and writer share only the
 * index. */
static double rate_with_writer(struct bench *bench, double seconds)
{
	static struct bench reader;
	pthread_t writer;
	double value = 0;

	reader.shape = bench->shape;
	reader.index = bench->index;
	reader.random = bench->random;
	reader.first = bench->first;
	atomic_store(&bench->over, false);
	if (pthread_create(&writer, NULL, write_at_full_speed, bench) != 0)
		return 0;
	value = rate(&reader, match, seconds);
	atomic_store(&bench->over, true);
	pthread_join(writer, NULL);
	return value;
}

static void fill(struct bench *bench)
{
	for (uint32_t worker = 0; worker < WORKERS; worker++)
		for (uint64_t prefix = 0; prefix < PREFIXES; prefix++)
			store(bench, prefix, 0, bench->shape->shared, worker);
	for (uint32_t i = 0; i < bench->shape->prompts; i++, bench->next++)
		store(bench, bench->next, bench->shape->shared, CHAIN,
			(uint32_t)(bench->next % WORKERS));
}

/* Returns how many blocks of a random chain the best worker holds, on average. */
static double matched(struct bench *bench)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < 1000; i++) {
		uint32_t best = 0;

		(void)match(bench);
		for (uint32_t k = 0; k < bench->hits.count; k++)
			if (bench->hits.blocks[bench->hits.workers[k]] > best)
				best = bench->hits.blocks[bench->hits.workers[k]];
		sum += best;
	}
	return (double)sum / 1000;
}

/* --- reporting --- */

static void print(const struct bench *bench, const char *metric, double value, const char *unit)
{
	struct kvw_kvindex_stats stats;

	kvw_kvindex_stats(bench->index, &stats);
	printf("{\"bench\":\"kvindex\",\"metric\":\"%s\",\"value\":%.5g,\"unit\":\"%s\","
	       "\"workers\":%u,\"chain_blocks\":%u,\"shared_blocks\":%u,\"blocks\":%llu,"
	       "\"holders\":%llu,\"bytes_per_holder\":%.3g,\"dropped\":%llu,\"note\":\"%s\"}\n",
		metric, value, unit, WORKERS, CHAIN, bench->shape->shared,
		(unsigned long long)stats.blocks, (unsigned long long)stats.holders,
		(double)stats.bytes_limit / (double)stats.holders,
		(unsigned long long)stats.dropped, bench->shape->note);
	fflush(stdout);
}

static void tell(const struct bench *bench, double values[FIGURES][MAX_ROUNDS], unsigned rounds)
{
	static const char *const names[FIGURES] = {
		"events_per_second",
		"repeats_per_second",
		"matches_per_second",
		"matches_per_second_beside_events",
		"matched_blocks",
	};
	static const char *const units[FIGURES] = {"1/s", "1/s", "1/s", "1/s", "1"};
	double middle[FIGURES];

	for (int i = 0; i < FIGURES; i++) {
		middle[i] = kvb_median(values[i], rounds);
		if (middle[i] > 0)
			print(bench, names[i], middle[i], units[i]);
	}
	fprintf(stderr, "%9.0fk %9.0fk %9.1fk %9.1fk %8.1f  %s\n", middle[EVENTS] / 1e3,
		middle[REPEATS] / 1e3, middle[MATCHES] / 1e3, middle[MATCHES_WHILE_WRITING] / 1e3,
		middle[MATCHED], bench->shape->note);
}

static int run_shape(const struct shape *shape, double seconds, unsigned rounds)
{
	static struct bench bench;
	static double values[FIGURES][MAX_ROUNDS];
	struct kvw_kvindex_options options = {.bytes = UINT64_C(256) << 20, .seed = 17};
	bool own = shape->shared < CHAIN; /* prompts have blocks that come and go */

	memset(&bench, 0, sizeof(bench));
	bench.shape = shape;
	if (kvw_kvindex_create(&options, &bench.index) != KVW_OK)
		return 1;
	fill(&bench);
	for (unsigned r = 0; r < rounds; r++) {
		values[EVENTS][r] = own ? rate(&bench, turn_over, seconds) : 0;
		values[REPEATS][r] = rate(&bench, repeat, seconds / 2);
		values[MATCHES][r] = rate(&bench, match, seconds);
		values[MATCHED][r] = matched(&bench);
		values[MATCHES_WHILE_WRITING][r] = own ? rate_with_writer(&bench, seconds) : 0;
	}
	tell(&bench, values, rounds);
	kvw_kvindex_destroy(bench.index);
	return 0;
}

static const struct shape shapes[] = {
	{"all workers hold all of it, in cache", 64, 1},
	{"16 of 64 blocks shared, out of cache", 16, 20000},
	{"16 of 64 blocks shared, in cache", 16, 64},
};

int main(int argc, char **argv)
{
	double seconds = 0.5;
	unsigned rounds = 5;
	int option = 0;
	int rc = 0;

	while ((option = getopt(argc, argv, "s:r:")) != -1) {
		if (option == 's') {
			seconds = atof(optarg);
		} else if (option == 'r') {
			rounds = (unsigned)atoi(optarg);
		} else {
			fprintf(stderr, "usage: %s [-s SECONDS] [-r ROUNDS]\n", argv[0]);
			return 2;
		}
	}
	if (seconds <= 0 || rounds < 1 || rounds > MAX_ROUNDS)
		return 2;
	fprintf(stderr, "  events/s  repeats/s  matches/s with writer  matched\n");
	for (size_t i = 0; i < sizeof(shapes) / sizeof(shapes[0]) && rc == 0; i++)
		rc = run_shape(&shapes[i], seconds, rounds);
	return rc;
}
