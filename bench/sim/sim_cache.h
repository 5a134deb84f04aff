/*
 * sim_cache.h - the KV block pool of one simulated engine, with its prefix cache.
 *
 * The pool works like vLLM's. A block is in use while sequences hold references to it; without any
 * it is in the free list, oldest first, and keeps its content (its chain hash) until it is given
 * out again. So eviction is LRU, and a released sequence loses its tail before its head. Two blocks
 * may carry the same hash. One block is never given out (the engine's null block): usable = blocks
 * - 1.
 *
 * The cache can report each block that it evicts to a callback; a hash that two blocks carry is
 * reported twice.
 *
 * Every call is O(blocks it names). Not thread-safe: one cache belongs to one engine.
 */
#ifndef KVB_SIM_CACHE_H
#define KVB_SIM_CACHE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvb_cache;

/* Returns NULL if memory is short. block_count includes the null block, so it is at least 2. */
struct kvb_cache *kvb_cache_create(uint32_t block_count);
void kvb_cache_destroy(struct kvb_cache *cache);

/* Called with the hash of each evicted block, before the block is given out again. A reset calls
 * nothing. */
typedef void kvb_evict_fn(void *user, uint64_t hash);
void kvb_cache_on_evict(struct kvb_cache *cache, kvb_evict_fn *fn, void *user);

uint32_t kvb_cache_usable(const struct kvb_cache *cache);    /* blocks - 1 */
/* number of blocks not in use, cached or not */
uint32_t kvb_cache_free(const struct kvb_cache *cache);
uint32_t kvb_cache_published(const struct kvb_cache *cache); /* blocks that carry a hash */
/* number of hashes lost so far because their block was given out again */
uint64_t kvb_cache_evictions(const struct kvb_cache *cache);

/* Returns how many hashes, from the first on, are found; their blocks are written to out. Takes no
 * reference. */
uint32_t kvb_cache_lookup(
	const struct kvb_cache *cache, const uint64_t *hashes, uint32_t count, uint32_t *out);

/*
 * Takes one reference to each of `hits` (blocks of a lookup), and gives out `fresh` further blocks
 * into out. If there are too few, returns false and changes nothing.
 */
bool kvb_cache_take(struct kvb_cache *cache, const uint32_t *hits, uint32_t hit_count,
	uint32_t fresh, uint32_t *out);

/* Gives a block that the caller holds this content, so that lookups find it. */
void kvb_cache_publish(struct kvb_cache *cache, uint32_t block, uint64_t hash);

/* Drops one reference to each block; blocks are in the order of the sequence. */
void kvb_cache_release(struct kvb_cache *cache, const uint32_t *blocks, uint32_t count);

/* Forgets all content. Returns false, and changes nothing, while a block is in use. */
bool kvb_cache_reset(struct kvb_cache *cache);

#endif
