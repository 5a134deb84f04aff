/*
 * radix.h - the prefix tree: which worker has seen which prompt prefix.
 *
 * One path-compressed radix tree over chunk hashes serves all workers and all models. A node covers
 * a run of up to KVW_RADIX_RUN chunks and has its holders: the workers that hold the run or its
 * beginning, and their last uses. A prompt's hashes are cumulative (chunk i's hash identifies all
 * chunks before it, too), so one flat table finds a node by the hash of its first chunk, anywhere
 * in the tree, and all of a prompt's look-ups can be in flight at once.
 *
 * Each worker's view is bounded by its own KV capacity and aged by LRU like the engine's cache; the
 * whole tree has a hard limit in bytes and drops least recently used branches beyond it. Forgetting
 * a worker takes constant time; its entries are ignored at once and reclaimed lazily.
 *
 * Threads: every function but create and destroy may run in any thread at any time. find and reach
 * take no lock and write nothing. A walk that races with an eviction can miss a prefix that was
 * just dropped or, with a probability of about 2^-20, see a wrong one; the only effect is a
 * slightly worse choice for one request.
 */
#ifndef KVW_RADIX_H
#define KVW_RADIX_H

#include <stdbool.h>
#include <stdint.h>

#include "kvway/err.h"
#include "kvway/route.h"

#define KVW_RADIX_RUN       27   /* limit of chunks in a node */
#define KVW_RADIX_MAX_STEPS 4096 /* longest path in nodes; deeper prefixes are cut off */
#define KVW_RADIX_MIN_BYTES (UINT64_C(1) << 20)

struct kvw_radix;

struct kvw_radix_options {
	uint64_t bytes; /* limit of all memory; raised to KVW_RADIX_MIN_BYTES if it is lower */
	uint64_t seed;  /* seed of the table's hash, against clients that target a bucket */

	/* A holder whose last use is within window/2^n of the newest is not written again, so that
	 * nodes shared by all requests stay unmodified in every core's cache. 0 means 4; 32 keeps
	 * exact order. */
	unsigned slack_shift;
};

/* One node on a prompt's path. */
struct kvw_radix_step {
	uint32_t node;
	uint32_t start; /* index of the prompt's chunk at which the node begins */
};

/* The path of a prompt through the tree, filled by kvw_radix_find. Plain data, 32 KiB; only the
 * steps in use are touched. */
struct kvw_radix_path {
	uint32_t count;   /* steps in use */
	uint32_t matched; /* leading chunks that the tree knows; set by reach and insert */
	bool settled;     /* the last step's run was compared, so that `matched` is set */
	struct kvw_radix_step steps[KVW_RADIX_MAX_STEPS];
};

/* The workers that hold leading chunks of a prompt, and how many chunks each holds. Plain data. */
struct kvw_radix_reach {
	uint32_t limit; /* set by the caller: only workers with ids below it are reported */
	uint32_t count; /* number of workers that hold any chunk */
	/* Their ids, in no order; the element after the last is written, too. */
	_Alignas(64) uint32_t workers[KVW_MAX_WORKERS + 1];
	uint32_t chunks[KVW_MAX_WORKERS]; /* leading chunks that each holds */

	/* [limit], internal: chunks by worker id, 0 for workers that hold none. */
	uint32_t map[KVW_MAX_WORKERS];
};

/* Parameters of an insert: the worker and its view. */
struct kvw_radix_use {
	uint32_t worker;          /* below KVW_MAX_WORKERS */
	uint64_t capacity_tokens; /* size of the worker's KV cache; > 0 */
	float tokens_per_unit;    /* turns kvw_chunk.end into tokens */
	int64_t now_ns;
};

/* Maps all memory at once; pages are first touched when they are needed. */
enum kvw_err kvw_radix_create(
	const struct kvw_radix_options *options, struct kvw_radix **out) KVW_MUST_CHECK;
void kvw_radix_destroy(struct kvw_radix *tree); /* NULL is allowed */

/* Walks one chain through the table and prefetches its nodes; while they arrive, the caller can do
 * other work before kvw_radix_reach. Fills *path. */
void kvw_radix_find(struct kvw_radix *tree, const struct kvw_chunk *chunks, uint32_t count,
	struct kvw_radix_path *path);

/* Finds how many leading chunks of a chain each worker below reach->limit holds, by the tree. path:
 * from kvw_radix_find, for the same chain; of *reach only the limit need be set. */
void kvw_radix_reach(struct kvw_radix *tree, const struct kvw_chunk *chunks, uint32_t count,
	struct kvw_radix_path *path, struct kvw_radix_reach *reach);

/* Records that the worker is about to compute or reuse this chain: from now on it holds all of it,
 * most recently used. path: from kvw_radix_find, for the same chain; it is overwritten. */
void kvw_radix_insert(struct kvw_radix *tree, const struct kvw_chunk *chunks, uint32_t count,
	const struct kvw_radix_use *use, struct kvw_radix_path *path);

/* Records that the worker did not compute this chain after all: it keeps only the first `kept`
 * chunks. In a node that it loses it also loses chunks beyond the chain. `path` is overwritten. */
void kvw_radix_retract(struct kvw_radix *tree, const struct kvw_chunk *chunks, uint32_t count,
	uint32_t kept, uint32_t worker, struct kvw_radix_path *path);

/* Prefetches the worker's data that the next insert will write. */
void kvw_radix_expect(struct kvw_radix *tree, uint32_t worker);

/* Forgets all chunks of a worker, in constant time. */
void kvw_radix_purge(struct kvw_radix *tree, uint32_t worker);

/* Returns the number of tokens in a worker's view. */
uint64_t kvw_radix_view_tokens(struct kvw_radix *tree, uint32_t worker);

/* Fills nodes, chunks, bytes, bytes_limit, evicted_chunks and purges.
 * Exact while no thread writes. */
void kvw_radix_stats(struct kvw_radix *tree, struct kvw_strategy_stats *out);

#endif
