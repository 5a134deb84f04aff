/*
 * sim_cache.c - blocks in one array, linked by index into a free list and hash chains.
 *
 * Each block is on the free list exactly while its reference count is 0, and in a hash chain
 * exactly while it is published. Index 0 is the null block; as an index it also means "none".
 */
#include <assert.h>
#include <stdlib.h>

#include "bench/sim/sim_cache.h"

struct block {
	uint64_t hash;
	uint32_t refs;
	uint32_t older, newer; /* free list; 0: none */
	uint32_t chain;        /* next block of the same bucket; 0: none */
	bool published;
};

struct kvb_cache {
	struct block *blocks; /* owned */
	uint32_t *buckets;    /* owned; first block of each chain */
	uint32_t bucket_mask;
	uint32_t count; /* blocks with the null block */
	uint32_t oldest, newest;
	uint32_t free;
	uint32_t published;
	uint64_t evictions;
	kvb_evict_fn *evicted; /* NULL: not called */
	void *evicted_user;
};

static uint32_t bucket_of(const struct kvb_cache *cache, uint64_t hash)
{
	return (uint32_t)(hash ^ hash >> 32) & cache->bucket_mask;
}

static void free_append(struct kvb_cache *cache, uint32_t i)
{
	struct block *b = &cache->blocks[i];

	b->older = cache->newest;
	b->newer = 0;
	if (cache->newest != 0)
		cache->blocks[cache->newest].newer = i;
	else
		cache->oldest = i;
	cache->newest = i;
	cache->free++;
}

static void free_unlink(struct kvb_cache *cache, uint32_t i)
{
	struct block *b = &cache->blocks[i];

	if (b->older != 0)
		cache->blocks[b->older].newer = b->newer;
	else
		cache->oldest = b->newer;
	if (b->newer != 0)
		cache->blocks[b->newer].older = b->older;
	else
		cache->newest = b->older;
	cache->free--;
}

static void unpublish(struct kvb_cache *cache, uint32_t i)
{
	uint32_t *link = &cache->buckets[bucket_of(cache, cache->blocks[i].hash)];

	while (*link != i) {
		assert(*link != 0);
		link = &cache->blocks[*link].chain;
	}
	*link = cache->blocks[i].chain;
	cache->blocks[i].published = false;
	cache->published--;
}

struct kvb_cache *kvb_cache_create(uint32_t block_count)
{
	struct kvb_cache *cache = calloc(1, sizeof(*cache));
	uint32_t buckets = 1;

	assert(block_count >= 2);
	while (buckets < block_count && buckets < UINT32_MAX / 2)
		buckets *= 2;
	if (cache == NULL)
		return NULL;
	cache->blocks = calloc(block_count, sizeof(*cache->blocks));
	cache->buckets = calloc(buckets, sizeof(*cache->buckets));
	if (cache->blocks == NULL || cache->buckets == NULL) {
		kvb_cache_destroy(cache);
		return NULL;
	}
	cache->bucket_mask = buckets - 1;
	cache->count = block_count;
	for (uint32_t i = 1; i < block_count; i++)
		free_append(cache, i);
	return cache;
}

void kvb_cache_destroy(struct kvb_cache *cache)
{
	if (cache == NULL)
		return;
	free(cache->blocks);
	free(cache->buckets);
	free(cache);
}

void kvb_cache_on_evict(struct kvb_cache *cache, kvb_evict_fn *fn, void *user)
{
	cache->evicted = fn;
	cache->evicted_user = user;
}

uint32_t kvb_cache_usable(const struct kvb_cache *cache)
{
	return cache->count - 1;
}

uint32_t kvb_cache_free(const struct kvb_cache *cache)
{
	return cache->free;
}

uint32_t kvb_cache_published(const struct kvb_cache *cache)
{
	return cache->published;
}

uint64_t kvb_cache_evictions(const struct kvb_cache *cache)
{
	return cache->evictions;
}

uint32_t kvb_cache_lookup(
	const struct kvb_cache *cache, const uint64_t *hashes, uint32_t count, uint32_t *out)
{
	uint32_t n = 0;

	for (; n < count; n++) {
		uint32_t i = cache->buckets[bucket_of(cache, hashes[n])];

		while (i != 0 && cache->blocks[i].hash != hashes[n])
			i = cache->blocks[i].chain;
		if (i == 0)
			break;
		out[n] = i;
	}
	return n;
}

bool kvb_cache_take(struct kvb_cache *cache, const uint32_t *hits, uint32_t hit_count,
	uint32_t fresh, uint32_t *out)
{
	uint32_t idle_hits = 0;

	for (uint32_t n = 0; n < hit_count; n++)
		idle_hits += cache->blocks[hits[n]].refs == 0;
	if (cache->free - idle_hits < fresh)
		return false;
	for (uint32_t n = 0; n < hit_count; n++)
		if (cache->blocks[hits[n]].refs++ == 0)
			free_unlink(cache, hits[n]);
	for (uint32_t n = 0; n < fresh; n++) {
		uint32_t i = cache->oldest;

		free_unlink(cache, i);
		if (cache->blocks[i].published) {
			unpublish(cache, i);
			cache->evictions++;
			if (cache->evicted != NULL)
				cache->evicted(cache->evicted_user, cache->blocks[i].hash);
		}
		cache->blocks[i].refs = 1;
		out[n] = i;
	}
	return true;
}

void kvb_cache_publish(struct kvb_cache *cache, uint32_t block, uint64_t hash)
{
	struct block *b = &cache->blocks[block];
	uint32_t *bucket = &cache->buckets[bucket_of(cache, hash)];

	assert(b->refs > 0 && !b->published);
	b->hash = hash;
	b->published = true;
	b->chain = *bucket;
	*bucket = block;
	cache->published++;
}

void kvb_cache_release(struct kvb_cache *cache, const uint32_t *blocks, uint32_t count)
{
	for (uint32_t n = count; n-- > 0;) {
		struct block *b = &cache->blocks[blocks[n]];

		assert(b->refs > 0);
		if (--b->refs == 0)
			free_append(cache, blocks[n]);
	}
}

bool kvb_cache_reset(struct kvb_cache *cache)
{
	if (cache->free != cache->count - 1)
		return false;
	for (uint32_t i = 1; i < cache->count; i++)
		if (cache->blocks[i].published)
			unpublish(cache, i);
	return true;
}
