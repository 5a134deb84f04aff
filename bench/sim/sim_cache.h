/*
 * sim_cache.h - the KV block pool of one simulated engine, with its prefix cache.
 *
 * Follows vLLM's pool. A block is in use while sequences hold references to it; without any it
 * lies on the free list, oldest first, and keeps its content (its chain hash) until it is given
 * out again. So eviction is LRU, and a released sequence loses its tail before its head. Two
 * blocks may carry the same hash. One block is never given out (the engine's null block):
 * usable = blocks - 1.
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

/* NULL without memory. block_count counts the null block: at least 2. */
struct kvb_cache *kvb_cache_create(uint32_t block_count);
void kvb_cache_destroy(struct kvb_cache *cache);

/* Called with the hash of each evicted block, before the block is given out again. A reset calls
 * nothing. */
typedef void kvb_evict_fn(void *user, uint64_t hash);
void kvb_cache_on_evict(struct kvb_cache *cache, kvb_evict_fn *fn, void *user);

uint32_t kvb_cache_usable(const struct kvb_cache *cache);    /* blocks - 1 */
uint32_t kvb_cache_free(const struct kvb_cache *cache);      /* not in use, cached or not */
uint32_t kvb_cache_published(const struct kvb_cache *cache); /* blocks that carry a hash */
uint64_t kvb_cache_evictions(const struct kvb_cache *cache); /* hashes lost to reuse, ever */

/* Number of leading hashes found; their blocks go into out. Takes no reference. */
uint32_t kvb_cache_lookup(
	const struct kvb_cache *cache, const uint64_t *hashes, uint32_t count, uint32_t *out);

/*
 * Takes one reference on each of `hits` (blocks of a lookup) and gives out `fresh` further blocks
 * into out. All or nothing: false, and nothing has changed, if there are too few.
 */
bool kvb_cache_take(struct kvb_cache *cache, const uint32_t *hits, uint32_t hit_count,
	uint32_t fresh, uint32_t *out);

/* The block, which the caller holds, now has this content and can be hit. */
void kvb_cache_publish(struct kvb_cache *cache, uint32_t block, uint64_t hash);

/* Drops one reference each; blocks come in the order of the sequence. */
void kvb_cache_release(struct kvb_cache *cache, const uint32_t *blocks, uint32_t count);

/* Forgets all content. False, and nothing has changed, while a block is in use. */
bool kvb_cache_reset(struct kvb_cache *cache);

#endif
