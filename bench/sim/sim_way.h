/*
 * sim_way.h - computes by the model the cost of fetching chunks, and how many of them are worth
 * fetching.
 *
 * A worker has one channel for each kind of link. A fetch is charged for when it begins
 * (kvb_way_fetch); whether it should begin is decided by the same arithmetic on a copy
 * (kvb_way_worth), with libkvtier's rule: the prefix that saves most time, that is, the time for
 * computing it minus the time for fetching it. The library's own estimate is not used with modelled
 * transfers, since the library measures how fast this machine moves shrunk payloads.
 *
 * Pure functions, except that they change the channels. All times are simulated.
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

/* Returns the end of fetching these chunks from now_ns on; tiers: for each chunk the tier that has
 * it, by libkvtier's numbers. */
int64_t kvb_way_fetch(struct kvb_ways *ways, const uint8_t *tiers, uint32_t count, int64_t now_ns);

/* Returns how many of these chunks are worth fetching. The first `hits` tokens are on the device
 * already; tokens_per_s: computed; 0: not known, then all of them are. */
uint32_t kvb_way_worth(const struct kvb_ways *ways, const uint8_t *tiers, uint32_t count,
	uint32_t chunk_tokens, uint32_t hits, double tokens_per_s, int64_t now_ns);

#endif
