/*
 * lookup.c - how fast prefixes are found, and what a chunk costs besides its bytes.
 *
 * Chains of 1,000 chunks. Warm: the same chain again and again. Random: another chain each time, so
 * that keys, table and entries come from memory. Times are processor times: a lookup takes no lock and
 * never waits, so other programs on the machine do not count. Two threads look up different chains in
 * the same index; their gain is the sum of their rates divided by the rate of one thread, each per
 * second of its own processor time, so contention for cache lines and memory shows in it. One thread
 * and two take turns in every round.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/cache/memory/figures.h"
#include "bench/cache/memory/measure.h"
#include "bench/cache/memory/shelf.h"
#include "bench/cache/memory/team.h"

#define CHAIN 1000u

/* The chains that one thread looks up, and its result. */
struct reader {
	struct kvb_shelf *shelf;
	const struct kvt_key *keys; /* keys of all chains, one chain after another */
	uint32_t chains;            /* 1: warm */
	uint32_t lookups;
	uint64_t random;
	uint64_t found;
	double cpu; /* processor time that its lookups took, in seconds */
};

static void look_up(void *self)
{
	struct reader *r = self;
	double begin = kvb_cpu_seconds();

	for (uint32_t i = 0; i < r->lookups; i++) {
		uint64_t chain;

		r->random = r->random * UINT64_C(6364136223846793005) + 1442695040888963407u;
		chain = (r->random >> 33) % r->chains;
		r->found += kvb_shelf_match(r->shelf, r->keys + chain * CHAIN, CHAIN);
	}
	r->cpu = kvb_cpu_seconds() - begin;
}

/* Returns the processor time of a lookup in seconds, while `threads` threads look up. */
static double time_of(struct reader reader, unsigned threads)
{
	struct reader readers[KVB_TEAM_MOST];
	double cpu = 0;

	for (unsigned i = 0; i < threads; i++) {
		readers[i] = reader;
		readers[i].random += UINT64_C(7919) * i;
	}
	(void)kvb_team(look_up, readers, sizeof(readers[0]), threads);
	for (unsigned i = 0; i < threads; i++) {
		cpu += readers[i].cpu / ((double)threads * reader.lookups);
		if (readers[i].found != (uint64_t)reader.lookups * CHAIN)
			kvb_fail("a chunk was not found");
	}
	return cpu;
}

static void fill(struct kvb_shelf *shelf, const struct kvt_key *keys, uint32_t chunks)
{
	for (uint32_t i = 0; i < chunks; i++) {
		const struct kvt_key *parent = i % CHAIN == 0 ? NULL : &keys[i - 1];

		if (!kvb_shelf_put(shelf, &keys[i], parent))
			kvb_fail("a chunk was refused");
	}
}

static struct kvt_key *make_keys(uint64_t first, uint32_t count)
{
	struct kvt_key *keys = malloc(count * sizeof(*keys));

	if (keys == NULL)
		kvb_fail("no memory for keys");
	for (uint32_t i = 0; i < count; i++)
		keys[i] = kvb_key(first + i);
	return keys;
}

static void measure_shelf(
	const struct kvb_options *options, struct kvb_shelf *shelf, uint32_t chunks)
{
	static const char *const names[] = {"lookup_1000_warm_us", "lookup_1000_random_us"};
	static const char *const gains[] = {
		"lookup_1000_warm_two_threads_gain", "lookup_1000_random_two_threads_gain"};
	struct kvt_key *keys = make_keys(0, chunks);
	struct kvb_series times[2] = {0}, gain[2] = {0};
	char more[128];

	fill(shelf, keys, chunks);
	for (unsigned round = 0; round < options->rounds; round++) {
		for (int kind = 0; kind < 2; kind++) {
			struct reader reader = {.shelf = shelf,
				.keys = keys,
				.chains = kind == 0 ? 1 : chunks / CHAIN,
				.lookups = kind == 0 ? options->lookups * 4 : options->lookups,
				.random = round * 31 + 1};
			double one = time_of(reader, 1);

			kvb_series_add(&times[kind], one * 1e6, 0);
			kvb_series_add(&gain[kind], 2 * one / time_of(reader, 2), 0);
		}
	}
	snprintf(more, sizeof(more), ", \"through\": \"%s\", \"chunks\": %u", kvb_shelf_name(shelf),
		chunks);
	for (int kind = 0; kind < 2; kind++) {
		kvb_series_print(&times[kind], names[kind], "us", NULL, more);
		kvb_series_print(&gain[kind], gains[kind], "1", NULL, more);
	}
	free(keys);
}

/* The library with as many chunks as the machine lets it address, at most those asked for; with fewer
 * than those, also its index alone with all of them. */
void kvb_measure_lookup(const struct kvb_options *options)
{
	uint32_t wanted = options->chunks / CHAIN * CHAIN, chunks = wanted;
	struct kvb_shelf *shelf = kvb_shelf_of_cache(chunks, "default");

	while (shelf == NULL && chunks > 2 * CHAIN) {
		chunks = chunks / 8 * 7 / CHAIN * CHAIN;
		shelf = kvb_shelf_of_cache(chunks, "default");
	}
	if (shelf == NULL)
		kvb_fail("no cache");
	measure_shelf(options, shelf, chunks);
	kvb_shelf_close(shelf);
	if (chunks == wanted)
		return;
	shelf = kvb_shelf_of_index(wanted, "default");
	if (shelf == NULL)
		kvb_fail("no index");
	measure_shelf(options, shelf, wanted);
	kvb_shelf_close(shelf);
}

/* Twice as many chunks as there is room for, so that what a policy remembers of those that went is
 * there too. */
void kvb_measure_metadata(const struct kvb_options *options)
{
	static const char *const policies[] = {
		"default", "lru", "lfu", "fifo", "arc", "s3fifo", "wtinylfu", "cost", "density"};
	uint32_t chunks = options->chunks / 4 / CHAIN * CHAIN;
	struct kvt_key *keys = make_keys(1u << 30, 2 * chunks);

	for (size_t i = 0; i < sizeof(policies) / sizeof(policies[0]); i++) {
		struct kvb_shelf *shelf = kvb_shelf_of_cache(chunks, policies[i]);
		struct kvb_shelf_cost cost;
		char more[256];

		if (shelf == NULL)
			kvb_fail("no cache");
		fill(shelf, keys, 2 * chunks);
		cost = kvb_shelf_cost(shelf);
		snprintf(more, sizeof(more),
			", \"policy\": \"%s\", \"chunks\": %llu, \"ghost_bytes_per_chunk\": %.1f, "
			"\"through\": \"%s\"",
			policies[i], (unsigned long long)cost.chunks,
			(double)cost.ghosts / (double)cost.chunks, kvb_shelf_name(shelf));
		kvb_figure_print("metadata_bytes_per_chunk",
			(double)cost.metadata / (double)cost.chunks, "B", more);
		kvb_shelf_close(shelf);
	}
	free(keys);
}
