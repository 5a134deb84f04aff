/*
 * index_bench.c - the index of a tier alone: lookups, holds, inserts, bytes per entry.
 *
 *	index_bench [--entries N] [--policy NAME] [--rounds N]
 *
 * Chains of 1,000 chunks. "warm" asks for one chain again and again, "random" for a random chain
 * among N resident chunks (default 1,000,000). They come in their chains' order, but eight hundred
 * chains at a time take turns, so that a chain's entries lie all over the slab. Prints one JSON
 * object per figure; times are medians of rounds.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "index/cache_index.h"
#include "bench/timing.h"

#define CHAIN       1000
#define TURNS       800
#define MAX_THREADS 2

struct bench {
	struct kvt_index *index;
	struct kvt_key *keys; /* keys of all chains, one chain after another */
	uint32_t entries;
	uint32_t chains;
	uint32_t rounds;
};

/* One thread that looks up chains until `stop` is set. */
struct looker {
	struct bench *bench;
	_Atomic bool *stop;
	uint64_t random;
	uint64_t chunks; /* looked up */
};

static int64_t now_ns(void *unused)
{
	struct timespec t;

	(void)unused;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

static void say(void *self, uint32_t level, const char *line)
{
	(void)self, (void)level;
	fprintf(stderr, "%s\n", line);
}

static const struct kvt_surroundings surroundings = {
	.clock = {.now_ns = now_ns, .wall_ns = now_ns}, .log = say};

static uint64_t next_random(uint64_t *state)
{
	uint64_t z = *state += 0x9e3779b97f4a7c15ull;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
	return z ^ (z >> 31);
}

static void make_key(uint64_t *random, struct kvt_key *key)
{
	for (size_t i = 0; i < sizeof(key->bytes); i += 8)
		memcpy(&key->bytes[i], &(uint64_t){next_random(random)}, 8);
}

static void ignore_gone(
	void *self, uint32_t entry, const struct kvt_key *key, const struct kvt_entry_info *info)
{
	(void)self, (void)entry, (void)key, (void)info;
}

static void print(const char *figure, double value, const char *unit)
{
	printf("{\"figure\": \"%s\", \"value\": %.1f, \"unit\": \"%s\"}\n", figure, value, unit);
}

static void die(const char *what)
{
	fprintf(stderr, "index_bench: %s\n", what);
	exit(1);
}

static void put(struct bench *b, uint32_t number)
{
	const struct kvt_entry_info info = {
		.bytes = 1, .charge = 1, .expires_wall_ns = INT64_MAX, .cost_ns = 1000};
	const struct kvt_key *parent = number % CHAIN == 0 ? NULL : &b->keys[number - 1];
	uint32_t entry;

	if (kvt_index_insert(b->index, &b->keys[number], parent, &info, &entry) != KVT_OK ||
		kvt_index_publish(b->index, entry) != KVT_OK)
		die("an insert failed");
	kvt_index_release(b->index, entry);
}

/* Inserts chains from..to, TURNS of them at a time: each chunk is the next one of a random
 * chain. */
static void put_turns(struct bench *b, uint32_t from, uint32_t to)
{
	uint32_t done[TURNS], chain[TURNS], open = 0;
	uint64_t random = 1;

	while (from < to || open > 0) {
		uint32_t turn;

		for (; open < TURNS && from < to; open++, from++) {
			chain[open] = from;
			done[open] = 0;
		}
		turn = (uint32_t)(next_random(&random) % open);
		put(b, chain[turn] * CHAIN + done[turn]);
		if (++done[turn] == CHAIN) {
			open--;
			chain[turn] = chain[open];
			done[turn] = done[open];
		}
	}
}

static void open_index(struct bench *b, const char *policy)
{
	const struct kvt_index_options options = {
		.max_entries = b->entries,
		.capacity = b->entries,
		.policy = policy,
		.max_ghost_bytes = 16ull * b->entries,
		.gone = ignore_gone,
	};
	int64_t begun;

	if (kvt_index_create(&options, &surroundings, &b->index) != KVT_OK)
		die("cannot create the index");
	begun = now_ns(NULL);
	put_turns(b, 0, b->chains);
	print("insert_ns_per_chunk", (double)(now_ns(NULL) - begun) / b->entries, "ns");
}

static double time_match(struct bench *b, const struct kvt_key *chain)
{
	int64_t begun = now_ns(NULL);

	if (kvt_index_match(b->index, chain, CHAIN) != CHAIN)
		die("a chain is not there");
	return (double)(now_ns(NULL) - begun);
}

static const struct kvt_key *random_chain(struct bench *b, uint64_t *random)
{
	return &b->keys[next_random(random) % b->chains * CHAIN];
}

static void bench_match(struct bench *b)
{
	double *times = malloc(b->rounds * sizeof(*times));
	uint64_t random = 2;

	if (times == NULL)
		die("out of memory");
	(void)time_match(b, b->keys);
	for (uint32_t i = 0; i < b->rounds; i++)
		times[i] = time_match(b, b->keys);
	print("match_1000_warm", kvb_median(times, b->rounds) / 1000, "us");
	for (uint32_t i = 0; i < b->rounds; i++)
		times[i] = time_match(b, random_chain(b, &random));
	print("match_1000_random", kvb_median(times, b->rounds) / 1000, "us");
	free(times);
}

static void *look(void *arg)
{
	struct looker *l = arg;

	while (!atomic_load_explicit(l->stop, memory_order_relaxed)) {
		(void)kvt_index_match(l->bench->index, random_chain(l->bench, &l->random), CHAIN);
		l->chunks += CHAIN;
	}
	return NULL;
}

/* Returns how many chunks a second so many threads look up. */
static double rate(struct bench *b, uint32_t threads)
{
	const struct timespec pause = {.tv_nsec = 300000000};
	struct looker lookers[MAX_THREADS];
	pthread_t ids[MAX_THREADS];
	_Atomic bool stop = false;
	uint64_t chunks = 0;
	int64_t begun = now_ns(NULL);

	for (uint32_t i = 0; i < threads; i++) {
		lookers[i] = (struct looker){.bench = b, .stop = &stop, .random = i + 10};
		if (pthread_create(&ids[i], NULL, look, &lookers[i]) != 0)
			die("cannot create a thread");
	}
	nanosleep(&pause, NULL);
	atomic_store(&stop, true);
	for (uint32_t i = 0; i < threads; i++) {
		pthread_join(ids[i], NULL);
		chunks += lookers[i].chunks;
	}
	return (double)chunks * 1e9 / (double)(now_ns(NULL) - begun);
}

static void bench_threads(struct bench *b)
{
	double ones[5], ratios[5];

	for (int i = 0; i < 5; i++) {
		ones[i] = rate(b, 1);
		ratios[i] = rate(b, 2) / ones[i];
	}
	print("match_chunks_per_second", kvb_median(ones, 5), "1/s");
	printf("{\"figure\": \"match_two_threads\", \"value\": %.2f, \"unit\": \"ratio\"}\n",
		kvb_median(ratios, 5));
}

static void bench_hold(struct bench *b)
{
	double *times = malloc(b->rounds * sizeof(*times));
	uint32_t entries[CHAIN];
	uint64_t random = 3;

	if (times == NULL)
		die("out of memory");
	for (uint32_t i = 0; i < b->rounds; i++) {
		const struct kvt_key *chain = random_chain(b, &random);
		int64_t begun = now_ns(NULL);

		if (kvt_index_hold_chain(b->index, chain, CHAIN, true, entries) != CHAIN)
			die("a chain is not there");
		for (uint32_t j = 0; j < CHAIN; j++)
			kvt_index_release(b->index, entries[j]);
		times[i] = (double)(now_ns(NULL) - begun);
	}
	print("hold_release_1000_random", kvb_median(times, b->rounds) / 1000, "us");
	free(times);
}

/* Inserts new chains by turns into a full index, so that each chunk evicts an old one. */
static void bench_churn(struct bench *b)
{
	const uint32_t chains = b->chains / 4;
	uint64_t random = 4;
	int64_t begun;

	if (chains == 0)
		return;
	for (uint32_t i = 0; i < chains * CHAIN; i++)
		make_key(&random, &b->keys[i]);
	begun = now_ns(NULL);
	put_turns(b, 0, chains);
	print("insert_evicting_ns_per_chunk", (double)(now_ns(NULL) - begun) / chains / CHAIN,
		"ns");
}

int main(int argc, char **argv)
{
	struct bench b = {.entries = 1000000, .rounds = 2001};
	const char *policy = "lru";
	struct kvt_index_stats stats;
	uint64_t random = 5;

	for (int i = 1; i + 1 < argc; i += 2) {
		if (strcmp(argv[i], "--entries") == 0)
			b.entries = (uint32_t)strtoul(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--rounds") == 0)
			b.rounds = (uint32_t)strtoul(argv[i + 1], NULL, 10);
		else if (strcmp(argv[i], "--policy") == 0)
			policy = argv[i + 1];
		else
			die("usage: index_bench [--entries N] [--policy NAME] [--rounds N]");
	}
	b.chains = b.entries / CHAIN;
	b.entries = b.chains * CHAIN;
	b.keys = malloc((size_t)b.entries * sizeof(*b.keys) + 1);
	if (b.entries == 0 || b.rounds == 0 || b.keys == NULL)
		die("nothing to measure");
	for (uint32_t i = 0; i < b.entries; i++)
		make_key(&random, &b.keys[i]);
	open_index(&b, policy);
	kvt_index_stats(b.index, &stats);
	print("metadata_bytes_per_chunk", (double)stats.metadata_bytes / (double)stats.entries,
		"B");
	print("ghost_bytes_per_chunk", (double)stats.ghost_bytes / (double)stats.entries, "B");
	bench_match(&b);
	bench_threads(&b);
	bench_hold(&b);
	bench_churn(&b);
	kvt_index_destroy(b.index);
	free(b.keys);
	return 0;
}
