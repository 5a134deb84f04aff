/*
 * sim_fragments.h - a simulated worker's store of cached text that is not a prefix.
 *
 * A prompt is cut into segments: the contents of messages, and within them the parts between
 * separators (one token of the simulated tokenizer each). A segment that was computed, all of it and in
 * whatever context, is stored under its tokens alone and the request's salt. A later prompt that has it
 * anywhere behind its exact prefix takes it from there: its bytes are loaded, its keys moved to their
 * new place, and a share of its tokens is computed again (CacheBlend).
 *
 * What a token of it costs, all simulated:
 *     loading    KV bytes / rate of the GPU's link, and of the disk's link where it lies there alone
 *     moving     half of these bytes (keys) / `rotate_bytes_per_s`
 *     computing  share + (1 - share) * first layers of a computed token, if share > 0: on the first
 *                layers all tokens are computed, to choose those that deviate most
 * Loading and moving are added to the step: no overlap with computing is assumed.
 *
 * The store has room for tokens in memory and on disk, in units of 256 tokens each, least recently used
 * out (sim_tier.h). Memory is lost by a restart, the disk is not. Belongs to one event loop.
 */
#ifndef KVB_SIM_FRAGMENTS_H
#define KVB_SIM_FRAGMENTS_H

#include <stdbool.h>
#include <stdint.h>

#include "bench/sim/sim_engine.h"

#define KVB_FRAGMENT_UNIT 256u /* tokens */

struct kvb_link;

struct kvb_fragments_options {
	bool on;
	/* text at which prompts are cut, borrowed; "": they are cut at messages alone */
	const char *separator;
	uint32_t min_tokens;                  /* shorter segments are computed */
	uint32_t memory_tokens, disk_tokens;  /* tokens for which there is room; disk 0: no disk */
	double share;                         /* share of tokens that is computed again, 0 to 1 */
	double first_layers;                  /* share of all layers that choose these tokens */
	double rotate_bytes_per_s;            /* bytes of keys that are moved per second */
	uint32_t kv_bytes;                    /* of a token */
	const struct kvb_link *memory, *disk; /* borrowed */
};

struct kvb_fragments_stats {
	/* segments looked up behind exact prefixes; segments of these that were stored */
	uint64_t segments, found;
	/* counted when they were planned, and again after a preemption */
	uint64_t reused_tokens, moved_bytes;
	uint64_t stored;                        /* segments */
	uint32_t memory_units, disk_units;      /* held */
};

struct kvb_fragments;

void kvb_fragments_init(struct kvb_fragments_options *options); /* sets the defaults: off */

/* NULL without memory. `options` is borrowed. */
struct kvb_fragments *kvb_fragments_create(const struct kvb_fragments_options *options);
void kvb_fragments_destroy(struct kvb_fragments *fragments); /* NULL is allowed */
/* empties both stores, as a new process would have them */
void kvb_fragments_restart(struct kvb_fragments *fragments);

/* Sets the ranges of a sequence that has its first `from` tokens; none if it is to be `exact`. */
void kvb_fragments_blend(struct kvb_fragments *fragments, struct kvb_seq *seq, uint64_t salt,
	uint32_t from, bool exact);
/* Stores the segments that have been computed by now. After a kvb_fragments_blend. */
void kvb_fragments_passed(struct kvb_fragments *fragments, struct kvb_seq *seq);

void kvb_fragments_stats(const struct kvb_fragments *fragments, struct kvb_fragments_stats *out);

#endif
