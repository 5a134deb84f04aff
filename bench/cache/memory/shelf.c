/*
 * shelf.c - something with chunks in chains that can be looked up: the library, or its index alone.
 *
 * Chunks of the library are reserved and committed with checksums that are handed in, so that not a
 * byte of them is touched: a million of them need addresses and no memory.
 */
#include "bench/cache/memory/shelf.h"

#include <stdlib.h>
#include <string.h>

#include "memory/arena.h"
#include "index/cache_index.h"

struct kvb_shelf {
	struct kvt_index *index; /* NULL: the chunks are in `cache` */
	struct kvt *cache;
	struct kvt_surroundings surroundings;
};

struct kvt_key kvb_key(uint64_t number)
{
	struct kvt_key key;

	for (size_t i = 0; i < sizeof(key.bytes) / sizeof(uint64_t); i++) {
		uint64_t x = (number * 4 + i + 1) * UINT64_C(0x9e3779b97f4a7c15);

		x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
		x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
		x ^= x >> 31;
		memcpy(key.bytes + i * sizeof(x), &x, sizeof(x));
	}
	return key;
}

static void forget(
	void *self, uint32_t entry, const struct kvt_key *key, const struct kvt_entry_info *info)
{
	(void)self;
	(void)entry;
	(void)key;
	(void)info;
}

struct kvb_shelf *kvb_shelf_of_index(uint32_t chunks, const char *policy)
{
	struct kvb_shelf *shelf = calloc(1, sizeof(*shelf));
	struct kvt_index_options options = {
		.max_entries = chunks,
		.capacity = (uint64_t)chunks * KVT_ARENA_UNIT,
		.policy = policy,
		.max_ghost_bytes = (uint64_t)chunks * 64,
		.gone = forget,
	};

	if (shelf == NULL)
		return NULL;
	kvt_surroundings_init(&shelf->surroundings, NULL);
	if (kvt_index_create(&options, &shelf->surroundings, &shelf->index) != KVT_OK) {
		free(shelf);
		return NULL;
	}
	return shelf;
}

struct kvb_shelf *kvb_shelf_of_cache(uint32_t chunks, const char *policy)
{
	struct kvb_shelf *shelf = calloc(1, sizeof(*shelf));
	struct kvt_config config;

	if (shelf == NULL)
		return NULL;
	kvt_config_init(&config, sizeof(config));
	config.l1_capacity = (uint64_t)chunks * KVT_ARENA_UNIT;
	config.l1_backing = "anon";
	config.l1_policy = policy;
	config.l1_max_chunks = chunks;
	config.l1_staging_share = 0;
	config.l1_scrub_rate = 0; /* no background check: the chunks have no bytes */
	if (kvt_open(&config, &shelf->cache) != KVT_OK) {
		free(shelf);
		return NULL;
	}
	return shelf;
}

void kvb_shelf_close(struct kvb_shelf *shelf)
{
	if (shelf == NULL)
		return;
	if (shelf->index != NULL)
		kvt_index_destroy(shelf->index);
	kvt_close(shelf->cache);
	free(shelf);
}

static bool put_in_index(
	struct kvb_shelf *shelf, const struct kvt_key *key, const struct kvt_key *parent)
{
	struct kvt_entry_info info = {.bytes = KVT_ARENA_UNIT,
		.charge = KVT_ARENA_UNIT,
		.expires_wall_ns = INT64_MAX,
		.tokens = 256,
		.cost_ns = 1000000};
	uint32_t entry;

	if (kvt_index_insert(shelf->index, key, parent, &info, &entry) != KVT_OK)
		return false;
	if (kvt_index_publish(shelf->index, entry) != KVT_OK)
		return false;
	kvt_index_release(shelf->index, entry);
	return true;
}

static bool put_in_cache(
	struct kvb_shelf *shelf, const struct kvt_key *key, const struct kvt_key *parent)
{
	struct kvt_item item = {
		.size = sizeof(item), .key = *key, .parent = parent, .bytes = KVT_ARENA_UNIT};
	const struct kvt_segment *segments;
	struct kvt_reservation *reservation;
	struct kvt_checksum none = {0, 0};
	uint32_t count, status;

	return kvt_put_reserve(shelf->cache, &item, 1, &reservation, &segments, &count, &status) ==
		       KVT_OK &&
	       kvt_put_commit(shelf->cache, reservation, 1, &none) == KVT_OK;
}

bool kvb_shelf_put(struct kvb_shelf *shelf, const struct kvt_key *key, const struct kvt_key *parent)
{
	return shelf->index != NULL ? put_in_index(shelf, key, parent)
				    : put_in_cache(shelf, key, parent);
}

size_t kvb_shelf_match(struct kvb_shelf *shelf, const struct kvt_key *keys, size_t n)
{
	struct kvt_lookup found = {0};

	if (shelf->index != NULL)
		return kvt_index_match(shelf->index, keys, n);
	return kvt_lookup(shelf->cache, keys, n, KVT_ALL_TIERS, NULL, &found) == KVT_OK ? found.hits
											: 0;
}

static struct kvb_shelf_cost cost_of_cache(struct kvb_shelf *shelf)
{
	struct kvt_stats stats = {.size = sizeof(stats)};
	const struct kvt_tier_stats *l1 = &stats.tiers[KVT_TIER_L1];

	if (kvt_stats(shelf->cache, &stats) != KVT_OK)
		return (struct kvb_shelf_cost){0};
	return (struct kvb_shelf_cost){
		l1->chunks, l1->metadata_bytes, l1->ghost_bytes, l1->name_bytes};
}

struct kvb_shelf_cost kvb_shelf_cost(struct kvb_shelf *shelf)
{
	struct kvt_index_stats stats;

	if (shelf->index == NULL)
		return cost_of_cache(shelf);
	kvt_index_stats(shelf->index, &stats);
	return (struct kvb_shelf_cost){.chunks = stats.entries,
		.metadata = stats.metadata_bytes,
		.ghosts = stats.ghost_bytes};
}

const char *kvb_shelf_name(const struct kvb_shelf *shelf)
{
	return shelf->index != NULL ? "index" : "kvt_lookup";
}
