/*
 * sim_tier.h - chunks of KV in a simulated CPU memory, LMCache's tier below the device.
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

/* Called for each key that enters or leaves. */
typedef void kvb_tier_fn(void *user, bool admit, uint64_t key);

/* NULL without memory. At least 1 chunk; fn NULL: not called. */
struct kvb_tier *kvb_tier_create(uint32_t chunks, kvb_tier_fn *fn, void *user);
void kvb_tier_destroy(struct kvb_tier *tier); /* NULL is allowed */

/* How many of the keys at the front are there. */
uint32_t kvb_tier_find(const struct kvb_tier *tier, const uint64_t *keys, uint32_t count);
/* They are used: the first one last, so that a prompt's beginning stays longest. */
void kvb_tier_touch(struct kvb_tier *tier, const uint64_t *keys, uint32_t count);
/* Those that are not there yet come in; less of them if pinned chunks leave no room. */
void kvb_tier_store(struct kvb_tier *tier, const uint64_t *keys, uint32_t count);
/* Pins the keys at the front that are there, and says how many. */
uint32_t kvb_tier_pin(struct kvb_tier *tier, const uint64_t *keys, uint32_t count);
/* Drops all that is not pinned and says how many. */
uint32_t kvb_tier_clear(struct kvb_tier *tier);
/* As a new process would: nothing is there or pinned, and fn is not called. */
void kvb_tier_restart(struct kvb_tier *tier);

uint32_t kvb_tier_count(const struct kvb_tier *tier);
/* All keys, least recently used first; out has room for kvb_tier_count(). */
void kvb_tier_copy(const struct kvb_tier *tier, uint64_t *out);

#endif
