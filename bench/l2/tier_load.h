/*
 * tier_load.h - libkvtier's shared tier driven through its requests, as L1 drives it, from one thread
 * that also is the tier's.
 *
 * Values lie one after another in memory; value i has the key kvb_key(i). Writes carry a checksum that
 * was made before (a commit to memory makes it anyway); reads come back verified, or end the program.
 */
#ifndef KVB_TIER_LOAD_H
#define KVB_TIER_LOAD_H

#include <stdbool.h>

#include "bench/l2/spent.h"
#include "tiers/tier.h"

struct kvb_tier_place;

struct kvb_tier_load {
	const char *name; /* of the program, for messages */
	char *memory;     /* keys * size; the caller's */
	uint64_t size;
	uint32_t keys;
	uint32_t depth; /* requests under way */

	/* its own */
	struct kvt_surroundings surroundings;
	struct kvt_tier *tier;
	struct kvb_tier_place *places;
	struct kvt_checksum *checksums; /* by key; of what is put */
	uint64_t asked, done, target;
	enum kvt_tier_verb verb;
};

/* Opens the tier that this configuration's l2_url names; the members above are set. */
void kvb_tier_load_open(struct kvb_tier_load *load, const struct kvt_config *config);
void kvb_tier_load_close(struct kvb_tier_load *load);

/* A checksum of every value as it lies in memory now; before the first write. */
void kvb_tier_load_sum(struct kvb_tier_load *load);

/* So many values, from the first on, over and over, as KVT_TIER_READ or KVT_TIER_WRITE. */
void kvb_tier_load_move(struct kvb_tier_load *load, enum kvt_tier_verb verb, uint64_t values);

/* Asks whether all values are there, as a cache does before it reads. */
void kvb_tier_load_probe(struct kvb_tier_load *load);

#endif
