/*
 * sim_tier.h - simulates chunks of KV in CPU memory, LMCache's tier below the device.
 *
 * A bounded set of 64-bit keys in the order of their use. A store makes all its room first, from
 * the least recently used chunk on, and then admits: so do LMCache's. Within a prompt chunks are
 * admitted from the first to the last, so a prompt that is not used again loses its beginning
 * first. Pinned chunks are never evicted or cleared.
 *
 * Every call is O(keys it names), clear and copy O(chunks). Not thread-safe.
 */
#ifndef KVB_SIM_TIER_H
#define KVB_SIM_TIER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct kvb_tier;

/* Called for each key that is added or removed. place: from 1 to the tier's number of chunks; no
 * other key has it while this one is there. */
typedef void kvb_tier_fn(void *user, bool admit, uint64_t key, uint32_t place);

/* Returns NULL if memory is short. chunks is at least 1; fn NULL: nothing is called. */
struct kvb_tier *kvb_tier_create(uint32_t chunks, kvb_tier_fn *fn, void *user);
void kvb_tier_destroy(struct kvb_tier *tier); /* NULL is allowed */

/* Returns how many of the keys, from the first on, are there. */
uint32_t kvb_tier_find(const struct kvb_tier *tier, const uint64_t *keys, uint32_t count);
/* Marks the keys as used: the first one last, so that a prompt's beginning stays longest. */
void kvb_tier_touch(struct kvb_tier *tier, const uint64_t *keys, uint32_t count);
/* Adds the keys that are not there yet; fewer if pinned chunks leave no room. */
void kvb_tier_store(struct kvb_tier *tier, const uint64_t *keys, uint32_t count);
/* Pins those keys, from the first on, that are there, and returns their number. */
uint32_t kvb_tier_pin(struct kvb_tier *tier, const uint64_t *keys, uint32_t count);
/* Drops all chunks that are not pinned, and returns their number. */
uint32_t kvb_tier_clear(struct kvb_tier *tier);
/* Begins again like a new process: no chunk is there or pinned, and fn is not called. */
void kvb_tier_restart(struct kvb_tier *tier);

uint32_t kvb_tier_count(const struct kvb_tier *tier);
/* Copies all keys, the least recently used first; out has room for kvb_tier_count(). */
void kvb_tier_copy(const struct kvb_tier *tier, uint64_t *out);

#endif
