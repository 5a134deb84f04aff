/*
 * exact.h - the blocks that workers report to hold: written by feeds, read by a strategy.
 *
 * A strategy owns the view (kvw_strategy_ops.exact lends it). The view joins the index of blocks
 * (routing/kvindex.h) with the coverage: whether the index has all of a worker's blocks. Two kinds
 * of reporters publish about one worker: the engine reports its own prefix cache, LMCache the tiers
 * behind it.
 *
 * Threads: the feed thread alone writes the index and calls the functions marked "feed thread". Any
 * thread may call the others.
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

/* The same sources as bits: each reporter's feed passes its mask as `among` when it marks sources
 * that hold a block only together (kvw_kvindex_require), and so leaves the other's marks alone. */
#define KVW_EXACT_ENGINE_MASK  0x00ffu
#define KVW_EXACT_LMCACHE_MASK 0xff00u

/* How completely a reporter's events describe a worker's cache. */
enum kvw_coverage {
	KVW_COVERAGE_NONE,  /* no reports: not configured, or none came yet */
	KVW_COVERAGE_BLIND, /* events were missed: not connected, joined late, a gap */
	KVW_COVERAGE_FULL,  /* the index has all blocks of the worker's cache */
};

/* A prompt's blocks under one reporter's hashing. Borrowed as the request is. */
struct kvw_exact_chain {
	enum kvw_reporter reporter;
	uint32_t space;        /* of the index */
	uint32_t block_tokens; /* tokens per block */
	uint32_t count;        /* whole blocks of the prompt */
	const uint64_t *keys;  /* [count] */
};

#define KVW_EXACT_CHAINS 16 /* most chains for one prompt */

/* --- feed thread --- */

struct kvw_kvindex *kvw_exact_index(struct kvw_exact *exact);

void kvw_exact_set_coverage(struct kvw_exact *exact, uint32_t worker, enum kvw_reporter reporter,
	enum kvw_coverage coverage);

/* The worker reports that its cache was emptied. The feed removes its blocks from the index; this
 * call removes the view's predicted blocks, which the worker was about to have. */
void kvw_exact_emptied(struct kvw_exact *exact, uint32_t worker);

/* To be called every 100 ms or so: executes requested purges (kvw_strategy_ops.purge) and lets the
 * index reclaim memory. Writes the ids of at most cap purged workers and returns their number; the
 * others wait for the next call. A purged worker's FULL coverages become BLIND: its reported blocks
 * are forgotten, so its feed has to read them again before it may set FULL. */
size_t kvw_exact_tick(struct kvw_exact *exact, int64_t now_ns, uint32_t *purged, size_t cap);

/* Executes the purges alone; costs one load if none was requested. The feed calls it before it
 * takes each message from a socket: so events that a worker publishes after the request are applied
 * after the purge and kept, and a restarted stream stays whole. */
size_t kvw_exact_purges(struct kvw_exact *exact, uint32_t *purged, size_t cap);

/* --- any thread --- */

/* While a requested purge waits, FULL reads as BLIND. */
enum kvw_coverage kvw_exact_coverage(
	const struct kvw_exact *exact, uint32_t worker, enum kvw_reporter reporter);

#endif
