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
	const char *name; /* the program's name, for messages */
	char *memory;     /* keys * size; the caller's */
	uint64_t size;
	uint32_t keys;
	uint32_t depth; /* requests under way at a time */

	/* its own */
	struct kvt_surroundings surroundings;
	struct kvt_tier *tier;
	struct kvb_tier_place *places;
	struct kvt_checksum *checksums; /* checksum of each value that is put, by key */
	uint64_t asked, done, target;
	enum kvt_tier_verb verb;
};

/* Opens the tier that this configuration's l2_url names; the caller has set the members above. */
void kvb_tier_load_open(struct kvb_tier_load *load, const struct kvt_config *config);
void kvb_tier_load_close(struct kvb_tier_load *load);

/* Computes a checksum of every value in memory; to be called before the first write. */
void kvb_tier_load_sum(struct kvb_tier_load *load);

/* Reads or writes so many values, in order and again from the first one. */
void kvb_tier_load_move(struct kvb_tier_load *load, enum kvt_tier_verb verb, uint64_t values);

/* Asks the tier whether it has all values, as a cache does before it reads. */
void kvb_tier_load_probe(struct kvb_tier_load *load);

#endif
