/*
 * exact.h - the view of the blocks that workers report: written by feeds, read by a strategy.
 *
 * A strategy owns the view, and lends it by kvw_strategy_ops.exact. The view joins the index of
 * blocks (routing/kvindex.h) with the coverage: whether the index has all of a worker's blocks. Two
 * kinds of reporters publish about one worker: the engine reports its own prefix cache, LMCache the
 * tiers behind it.
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

/* Numbers of the index's sources (struct kvw_kvindex_from) that each kind of reporter may use, for
 * every worker: an engine's ranks and cache groups, LMCache's ranks. */
#define KVW_EXACT_ENGINE_SOURCE   0u
#define KVW_EXACT_ENGINE_SOURCES  8u
#define KVW_EXACT_LMCACHE_SOURCE  8u
#define KVW_EXACT_LMCACHE_SOURCES 8u

/* The same sources as bits: a feed passes the mask of its reporter as `among` when it marks sources
 * that hold a block only together (kvw_kvindex_require), so that it leaves the other reporter's
 * marks unchanged. */
#define KVW_EXACT_ENGINE_MASK  0x00ffu
#define KVW_EXACT_LMCACHE_MASK 0xff00u

/* How completely a reporter's events describe a worker's cache. */
enum kvw_coverage {
	KVW_COVERAGE_NONE,  /* no reports: not configured, or none came yet */
	KVW_COVERAGE_BLIND, /* events were missed: not connected, joined late, a gap */
	KVW_COVERAGE_FULL,  /* the index has all blocks of the worker's cache */
};

/* A prompt's blocks, as one kind of reporter names them. Borrowed as the request is. */
struct kvw_exact_chain {
	enum kvw_reporter reporter;
	uint32_t space;        /* space in the index */
	uint32_t block_tokens; /* tokens per block */
	uint32_t count;        /* number of whole blocks in the prompt */
	const uint64_t *keys;  /* [count] */
};

#define KVW_EXACT_CHAINS 16 /* most chains for one prompt */

/* --- feed thread --- */

struct kvw_kvindex *kvw_exact_index(struct kvw_exact *exact);

void kvw_exact_set_coverage(struct kvw_exact *exact, uint32_t worker, enum kvw_reporter reporter,
	enum kvw_coverage coverage);

/* Called when the worker reports that its cache was emptied. The feed removes the reported blocks
 * from the index; this call drops the claims of blocks that the worker was about to have. */
void kvw_exact_emptied(struct kvw_exact *exact, uint32_t worker);

/* Executes requested purges (kvw_strategy_ops.purge) and lets the index reclaim memory; called
 * every 100 ms or so. Writes the ids of at most cap purged workers and returns their number; others
 * wait for the next call. A purged worker's coverages that were FULL become BLIND: its reported
 * blocks are forgotten, so that its feed has to read them again before it may set FULL. */
size_t kvw_exact_tick(struct kvw_exact *exact, int64_t now_ns, uint32_t *purged, size_t cap);

/* Executes only the purges; costs one load if none was requested. The feed calls this before it
 * takes each message from a socket: so events that a worker publishes after the request for a purge
 * are applied after the purge, and are kept. */
size_t kvw_exact_purges(struct kvw_exact *exact, uint32_t *purged, size_t cap);

/* --- any thread --- */

/* Returns how completely a reporter's events describe a worker's cache. While a requested purge
 * waits, KVW_COVERAGE_FULL is returned as BLIND. */
enum kvw_coverage kvw_exact_coverage(
	const struct kvw_exact *exact, uint32_t worker, enum kvw_reporter reporter);

#endif
