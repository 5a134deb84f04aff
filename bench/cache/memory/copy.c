/*
 * copy.c - bytes into the memory tier and out of it: put, verify, get.
 *
 * Put: kvt_put of 4 MiB chunks, from the caller's buffer to a visible chunk with its checksum, into a
 * cache that is full, so that each put evicts one. Its peer is memcpy of as many bytes between 4 MiB
 * buffers. The sources of both are the same; sources, targets and arena are a GiB each, so that no
 * cache holds them, all in huge pages where the machine has them, touched before the clock starts.
 *
 * Verify: kvt_get, kvt_verify, kvt_release of a chunk at a time; its peer is XXH3-128 of as many bytes
 * by the widest vectors that xxHash has for this machine. Get: a lease on one chunk and its release,
 * and per chunk of a lease on a chain.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <xxhash.h>
#ifdef KVT_XXH_DISPATCH
#include <xxh_x86dispatch.h> /* makes XXH3's names choose the widest vectors at run time */
#endif

#include "bench/cache/memory/figures.h"
#include "bench/cache/memory/measure.h"
#include "bench/cache/memory/shelf.h"
#include "bench/cache/memory/team.h"

#define CHUNK ((uint64_t)4 << 20)
#define CHAIN 16u                   /* chunks of a chain */
#define PAIR  (UINT64_C(2) * CHAIN) /* a chain for each of two threads */
#define GETS  20000u

struct bench {
	struct kvt *cache;
	char *from, *to; /* chunks * CHUNK bytes each */
	uint32_t chunks;
	uint64_t written; /* chunks put so far: the next one's number */
	uint64_t sink;    /* keeps the peer's hashes from being left out */
};

/* The part of a pass over all buffers that one thread does. */
struct share {
	struct bench *bench;
	uint32_t first, count; /* buffers */
	uint64_t number;       /* number of the first chunk that it puts */
};

static char *map(uint64_t bytes)
{
	char *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (at == MAP_FAILED)
		kvb_fail("no memory for buffers");
	(void)madvise(at, bytes, MADV_HUGEPAGE);
	return at;
}

static void copy_share(void *item)
{
	struct share *share = item;

	for (uint32_t i = share->first; i < share->first + share->count; i++)
		memcpy(share->bench->to + i * CHUNK, share->bench->from + i * CHUNK, CHUNK);
}

static void put_share(void *self)
{
	struct share *share = self;
	struct kvt_key key, parent = {{0}};
	enum kvt_status status;

	for (uint32_t i = 0; i < share->count; i++) {
		struct kvt_item item = {.size = sizeof(item), .bytes = CHUNK};

		key = kvb_key(share->number + i);
		item.key = key;
		item.parent = i % CHAIN == 0 ? NULL : &parent;
		status = kvt_put(share->bench->cache, &item,
			share->bench->from + (share->first + i) * CHUNK);
		if (status != KVT_OK)
			kvb_fail(kvt_status_text(status));
		parent = key;
	}
}

/* Returns the bytes per second of one pass over all buffers by one or two threads. */
static double pass(struct bench *bench, void (*work)(void *share), uint32_t threads)
{
	uint32_t each = bench->chunks / threads;
	struct share shares[KVB_TEAM_MOST];
	double seconds;

	for (uint32_t i = 0; i < threads; i++)
		shares[i] =
			(struct share){bench, i * each, each, bench->written + (uint64_t)i * each};
	seconds = kvb_team(work, shares, sizeof(shares[0]), threads);
	if (work == put_share)
		bench->written += (uint64_t)each * threads;
	return (double)(each * threads) * (double)CHUNK / seconds;
}

/* Returns how many chunks with these keys the cache holds, from the first one on. */
static size_t hits(struct bench *bench, const struct kvt_key *keys, size_t n)
{
	struct kvt_lookup found;

	if (kvt_lookup(bench->cache, keys, n, KVT_ALL_TIERS, NULL, &found) != KVT_OK)
		kvb_fail("a lookup was refused");
	return found.hits;
}

/* Finds keys of chunks that the cache holds, among those put last (the policy chose which it
 * evicted). */
static uint32_t find_held(struct bench *bench, struct kvt_key *keys, uint32_t most)
{
	uint64_t first = bench->written - bench->chunks;
	uint32_t n = 0;

	for (uint64_t i = bench->written; n < most && i-- > first;) {
		keys[n] = kvb_key(i);
		n += hits(bench, &keys[n], 1) == 1;
	}
	if (n == 0)
		kvb_fail("nothing that was put is there");
	return n;
}

/* Finds the keys of a whole chain that the cache holds. */
static void find_chain(struct bench *bench, struct kvt_key keys[CHAIN])
{
	uint64_t end = bench->written, first = end - bench->chunks;

	for (; end > first; end -= CHAIN) {
		for (uint32_t i = 0; i < CHAIN; i++)
			keys[i] = kvb_key(end - CHAIN + i);
		if (hits(bench, keys, CHAIN) == CHAIN)
			return;
	}
	kvb_fail("no chain is there as a whole");
}

static struct kvt_lease *lease_of(struct bench *bench, const struct kvt_key *keys, size_t n)
{
	struct kvt_lease *lease;

	if (kvt_get(bench->cache, keys, n, 0, &lease) != KVT_OK || lease->count != n)
		kvb_fail("a chunk that was there is not got");
	return lease;
}

static double verify_rate(struct bench *bench, const struct kvt_key *keys, uint32_t count)
{
	double begin = kvb_seconds();

	for (uint32_t i = 0; i < count; i++) {
		struct kvt_lease *lease = lease_of(bench, &keys[i], 1);

		if (kvt_verify(bench->cache, lease) != KVT_OK)
			kvb_fail("a chunk is not what was put");
		kvt_release(bench->cache, lease);
	}
	return count * (double)CHUNK / (kvb_seconds() - begin);
}

static double hash_rate(struct bench *bench, uint32_t count)
{
	double begin = kvb_seconds();

	for (uint32_t i = 0; i < count; i++)
		bench->sink += XXH3_128bits(bench->from + i * CHUNK, CHUNK).low64;
	return count * (double)CHUNK / (kvb_seconds() - begin);
}

/* Returns the nanoseconds per chunk of taking leases on `n` chunks of one chain. */
static double get_time(struct bench *bench, const struct kvt_key keys[CHAIN], uint32_t n)
{
	uint32_t times = GETS / n;
	double begin = kvb_seconds();

	for (uint32_t i = 0; i < times; i++)
		kvt_release(bench->cache, lease_of(bench, n == 1 ? &keys[i % CHAIN] : keys, n));
	return (kvb_seconds() - begin) * 1e9 / ((double)times * n);
}

/* Measures one round of get and verify. */
static void read_round(struct bench *bench, struct kvb_series *verify, struct kvb_series *one,
	struct kvb_series *chain)
{
	struct kvt_key keys[CHAIN], *held = malloc(bench->chunks * sizeof(*held));
	uint32_t n;
	double peer;

	if (held == NULL)
		kvb_fail("no memory for keys");
	n = find_held(bench, held, bench->chunks / 2);
	peer = hash_rate(bench, n);
	kvb_series_add(verify, verify_rate(bench, held, n), peer);
	find_chain(bench, keys);
	kvb_series_add(one, get_time(bench, keys, 1), 0);
	kvb_series_add(chain, get_time(bench, keys, CHAIN), 0);
	free(held);
}

static void open_bench(struct bench *bench, uint64_t bytes)
{
	struct kvt_config config;

	bench->chunks = (uint32_t)(bytes / CHUNK / PAIR * PAIR);
	kvt_config_init(&config, sizeof(config));
	config.l1_capacity = bench->chunks * CHUNK;
	config.l1_backing = "anon";
	if (kvt_open(&config, &bench->cache) != KVT_OK)
		kvb_fail("no cache");
	bench->from = map(bench->chunks * CHUNK);
	bench->to = map(bench->chunks * CHUNK);
	for (uint64_t i = 0; i < bench->chunks * CHUNK / sizeof(uint64_t); i++)
		((uint64_t *)bench->from)[i] = i * UINT64_C(0x9e3779b97f4a7c15);
	memset(bench->to, 1, bench->chunks * CHUNK);
	/* puts more chunks than the arena holds, so that each later put evicts one */
	for (int i = 0; i < 2; i++)
		(void)pass(bench, put_share, 1);
}

void kvb_measure_copy(const struct kvb_options *options)
{
	struct kvb_series put = {0}, both = {0}, verify = {0}, one = {0}, chain = {0};
	struct bench bench = {0};

	open_bench(&bench, options->bytes);
	for (unsigned round = 0; round < options->rounds; round++) {
		double peer = pass(&bench, copy_share, 1);

		kvb_series_add(&put, pass(&bench, put_share, 1), peer);
		peer = pass(&bench, copy_share, 2);
		kvb_series_add(&both, pass(&bench, put_share, 2), peer);
		(void)pass(&bench, put_share, 1);
		read_round(&bench, &verify, &one, &chain);
	}
	kvb_series_print(&put, "l1_put_bytes_per_second", "B/s", "memcpy", ", \"threads\": 1");
	kvb_series_print(&both, "l1_put_bytes_per_second", "B/s", "memcpy", ", \"threads\": 2");
	kvb_series_print(&verify, "l1_verify_bytes_per_second", "B/s", "xxh3", "");
	kvb_series_print(&one, "get_ns_per_chunk", "ns", NULL, ", \"chain\": 1");
	kvb_series_print(&chain, "get_ns_per_chunk", "ns", NULL, ", \"chain\": 16");
	kvt_close(bench.cache);
	munmap(bench.from, bench.chunks * CHUNK);
	munmap(bench.to, bench.chunks * CHUNK);
	if (bench.sink == 0)
		kvb_fail("the peer made no hashes");
}
