/*
 * sim_way.h - what fetching chunks costs by the model, and how many of them are worth it.
 *
 * The ways of one worker: one channel for each kind of link. A fetch is charged for when it begins
 * (kvb_way_fetch); whether it should begin is decided by the same arithmetic on a copy (kvb_way_worth),
 * with libkvtier's rule: the prefix that saves most, which is what computing it would take less what
 * fetching it does. The library's own estimate is not used where transfers are modelled, since what it
 * learns is how fast this machine moves shrunk payloads.
 *
 * Pure but for the channels. Simulated time.
 */
#ifndef KVB_SIM_WAY_H
#define KVB_SIM_WAY_H

#include <stdint.h>

#include "bench/sim/sim_link.h"

struct kvb_ways {
	const struct kvb_link *links[KVB_LINK_KINDS];
	struct kvb_channel channels[KVB_LINK_KINDS];
	uint64_t chunk_bytes; /* in full */
};

/* End of fetching these chunks from now_ns on; tiers: where each of them is, by libkvtier's numbers. */
int64_t kvb_way_fetch(struct kvb_ways *ways, const uint8_t *tiers, uint32_t count, int64_t now_ns);

/* How many of these chunks are worth fetching. The first `hits` tokens are on the device already;
 * tokens_per_s: computed; 0: not known, then all of them are. */
uint32_t kvb_way_worth(const struct kvb_ways *ways, const uint8_t *tiers, uint32_t count,
	uint32_t chunk_tokens, uint32_t hits, double tokens_per_s, int64_t now_ns);

#endif
