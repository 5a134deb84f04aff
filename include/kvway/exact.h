/*
 * exact.h - what workers themselves say they hold: written by feeds, asked by a strategy.
 *
 * Owned by a strategy (kvw_strategy_ops.exact lends it). It joins the index of blocks
 * (routing/kvindex.h) with what the index cannot know: whether it has all of a worker's blocks.
 * Two kinds of reporters publish about one worker: the engine its own prefix cache, LMCache the
 * tiers behind it.
 *
 * Threads: one thread, the feed's, is the index's writer and calls the functions marked so. All
 * others may be called from any thread.
 */
#ifndef KVW_EXACT_H
#define KVW_EXACT_H

#include <stddef.h>
#include <stdint.h>

struct kvw_exact;
struct kvw_kvindex; /* routing/kvindex.h */

enum kvw_reporter { KVW_REPORTER_ENGINE, KVW_REPORTER_LMCACHE, KVW_REPORTER_COUNT };

/* Sources of the index (struct kvw_kvindex_from) that each reporter's streams have, for every
 * worker: an engine's ranks and cache groups, LMCache's ranks. */
#define KVW_EXACT_ENGINE_SOURCE   0u
#define KVW_EXACT_ENGINE_SOURCES  8u
#define KVW_EXACT_LMCACHE_SOURCE  8u
#define KVW_EXACT_LMCACHE_SOURCES 8u

/* The same as bits: what each reporter's feed names as `among` when it says which of its sources
 * hold a block only together (kvw_kvindex_require), so that neither touches what the other said. */
#define KVW_EXACT_ENGINE_MASK  0x00ffu
#define KVW_EXACT_LMCACHE_MASK 0xff00u

/* How far a reporter's word about a worker can be believed. */
enum kvw_coverage {
	KVW_COVERAGE_NONE,  /* no reports: not configured, or never heard of */
	KVW_COVERAGE_BLIND, /* it reports, but some was missed: not connected, joined late, a gap */
	KVW_COVERAGE_FULL,  /* all that the worker's cache holds is in the index */
};

/* One way to name a prompt's blocks. Borrowed as the request is. */
struct kvw_exact_chain {
	enum kvw_reporter reporter;
	uint32_t space;        /* of the index */
	uint32_t block_tokens; /* tokens per block */
	uint32_t count;        /* whole blocks of the prompt */
	const uint64_t *keys;  /* [count] */
};

#define KVW_EXACT_CHAINS 16 /* most of them for one prompt */

/* --- feed thread --- */

struct kvw_kvindex *kvw_exact_index(struct kvw_exact *exact);

void kvw_exact_set_coverage(struct kvw_exact *exact, uint32_t worker, enum kvw_reporter reporter,
	enum kvw_coverage coverage);

/* The worker says that its cache was emptied. The feed removes its blocks from the index; this
 * call removes what the view predicts besides: blocks that the worker was about to have. */
void kvw_exact_emptied(struct kvw_exact *exact, uint32_t worker);

/* Every 100 ms or so: carries out the purges that were asked for (kvw_strategy_ops.purge), and lets
 * the index reclaim. Writes the ids of at most cap purged workers, returns how many; the rest
 * waits for the next call. Coverages of a purged worker that were FULL are BLIND now: all that it
 * reported is forgotten, so its feed has to read it again before it may say FULL. */
size_t kvw_exact_tick(struct kvw_exact *exact, int64_t now_ns, uint32_t *purged, size_t cap);

/* The purges alone; costs one load if none was asked for. The feed calls it each time before it
 * takes a message from a socket: then what a worker publishes after the purge was requested is
 * applied after the purge and kept, and a restarted stream stays whole. */
size_t kvw_exact_purges(struct kvw_exact *exact, uint32_t *purged, size_t cap);

/* --- any thread --- */

/* BLIND at most while a purge waits to be carried out. */
enum kvw_coverage kvw_exact_coverage(
	const struct kvw_exact *exact, uint32_t worker, enum kvw_reporter reporter);

#endif
