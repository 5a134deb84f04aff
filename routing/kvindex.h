/*
 * kvindex.h - the KV blocks that each worker holds, by the events that workers publish.
 *
 * Engines and cache layers publish what they store and drop. The index keeps the result: for each
 * block of a prompt the workers that hold it and in which tier. It is as exact as the events, and
 * when it has to forget, the error is a miss, never a wrong hit.
 *
 * A block has two names. Its *key* identifies a prompt's beginning up to the block's end: the
 * router computes it from a request's own tokens. Its *engine hash* is its name in events: 64 bits,
 * wider ones folded by the feed. Removals contain the engine hash alone and continued chains the
 * parent's, so the index also stores the key of every engine hash, per worker and source. Keys of
 * one *space* are comparable: one engine's block size, model, adapter and salt, or one recipe of
 * chunk hashes. The caller numbers the spaces; equal keys of two spaces are two blocks.
 *
 * A *source* is one stream of events about a worker: an engine's rank, a cache layer. Blocks are
 * counted per source, so that one source can be cleared without the others.
 *
 * Threads: match and stats run in any number of threads at any time, take no lock and write
 * nothing. All other functions write and belong to one thread at a time. A match that runs while
 * another thread writes sees each block before or after the change: a block removed a moment ago
 * may be hit once more, and a match may miss a block that is being written.
 */
#ifndef KVW_KVINDEX_H
#define KVW_KVINDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"
#include "kvway/route.h"

#define KVW_KVINDEX_SOURCES   16 /* limit of event streams per worker */
/* Sources are divided into groups of this size, each with its own kind of blocks. */
#define KVW_KVINDEX_GROUP     8
#define KVW_KVINDEX_ANY       UINT32_MAX
#define KVW_KVINDEX_MIN_BYTES (UINT64_C(15) << 16)

struct kvw_kvindex;

/* The source of an event. */
struct kvw_kvindex_from {
	uint32_t worker; /* below KVW_MAX_WORKERS */
	uint32_t source; /* below KVW_KVINDEX_SOURCES */
};

/* Blocks whose parent was unknown when they were stored, and is known now. Borrowed: valid during
 * the callback. */
struct kvw_kvindex_parked {
	struct kvw_kvindex_from from;
	uint32_t space;
	enum kvw_tier tier;
	uint64_t parent_key;    /* the key of the block `parent` */
	uint32_t count;         /* blocks */
	const uint64_t *hashes; /* [count] engine hashes */
	const void *payload;    /* the data that the caller parked with them, aligned to 8 */
	size_t payload_bytes;
};

/* Computes the keys of parked blocks: fills keys[parked->count] and returns true. False:
 * impossible; the blocks are dropped. Runs inside a writer and must not call one. */
typedef bool kvw_kvindex_keys_fn(
	void *ctx, const struct kvw_kvindex_parked *parked, uint64_t *keys);

struct kvw_kvindex_options {
	uint64_t bytes; /* limit of memory without parked records; at least KVW_KVINDEX_MIN_BYTES */
	uint64_t park_bytes; /* limit of memory for parked records; 0: none are kept */
	int64_t park_ns;     /* longest wait of a record for its parent */
	uint64_t seed; /* seed of the tables' hash, so that clients cannot target one bucket */
	kvw_kvindex_keys_fn *keys; /* required if records are parked */
	void *keys_ctx;
};

/* Blocks that one event names. Arrays borrowed during the call. */
struct kvw_kvindex_blocks {
	uint32_t space;
	enum kvw_tier tier;
	uint32_t count;
	const uint64_t *hashes; /* [count] engine hashes, in the order of the chain */
	const uint64_t *keys;   /* [count]; not read by park and removed */
};

/* The workers that hold leading blocks of a chain, and how many each holds. Plain data, about 24
 * KiB. */
struct kvw_kvindex_hits {
	uint32_t count;                    /* workers that hold the first block */
	uint16_t workers[KVW_MAX_WORKERS]; /* their ids, in no order */
	uint32_t blocks[KVW_MAX_WORKERS];  /* by id: leading blocks held; 0 for the rest */
	uint32_t tokens[KVW_MAX_WORKERS][KVW_TIER_COUNT]; /* by id, set where blocks > 0 */
	uint8_t tier[KVW_MAX_WORKERS];                    /* by id: tier of the last such block */
};

struct kvw_kvindex_stats {
	uint64_t blocks;      /* keys with at least one holder */
	uint64_t holders;     /* pairs of an engine hash and a tier, of all workers and sources */
	/* holders among these that were purged or cleared and are not reclaimed yet */
	uint64_t stale;
	uint64_t bytes;       /* in use */
	uint64_t bytes_limit; /* limit of `bytes` */
	uint64_t parked;      /* records */
	uint64_t parked_bytes;
	uint64_t parked_limit; /* limit of parked_bytes */
	uint64_t dropped;         /* holders forgotten for lack of room, since start */
	uint64_t parked_dropped;  /* records that never found their parent, since start */
	uint64_t unknown_removes; /* since start */
	uint64_t purges;          /* number of purges of workers, since start */
	uint64_t clears;          /* since start */
};

/* Maps all memory at once; pages are first touched when they are needed. */
enum kvw_err kvw_kvindex_create(
	const struct kvw_kvindex_options *options, struct kvw_kvindex **out) KVW_MUST_CHECK;
void kvw_kvindex_destroy(struct kvw_kvindex *index); /* NULL is allowed */

/* --- writers --- */

/* Records that the worker stored these blocks. A hash stored several times in one tier is counted
 * and needs as many removals. Records parked for one of the hashes are resumed. */
void kvw_kvindex_stored(struct kvw_kvindex *index, struct kvw_kvindex_from from,
	const struct kvw_kvindex_blocks *blocks);

/* Records that the worker dropped these blocks from this tier. */
void kvw_kvindex_removed(struct kvw_kvindex *index, struct kvw_kvindex_from from,
	const struct kvw_kvindex_blocks *blocks);

/* Forgets all blocks of a worker by a source in a tier, parked records included. Source and tier
 * may be KVW_KVINDEX_ANY. Constant time. Also called before a stream is read from its start again,
 * since blocks that are stored twice would need two removals. */
void kvw_kvindex_cleared(
	struct kvw_kvindex *index, uint32_t worker, uint32_t source, uint32_t tier);

/* Forgets a worker, in constant time. */
void kvw_kvindex_purge(struct kvw_kvindex *index, uint32_t worker);

/* Replaces the function of the options that computes the keys of parked records. */
void kvw_kvindex_set_keys(struct kvw_kvindex *index, kvw_kvindex_keys_fn *keys, void *keys_ctx);

/* Sets which sources of a worker hold a block only together, bit s for source s: ranks that keep a
 * slice each, or groups of layers. A block counts for these sources when all of them have it, in
 * the slowest of their fastest tiers. All other sources, initially all, count separately. A purge
 * does not change this.
 *
 * The call sets only the sources in `among`, so that a feed need not know the other sources: for
 * example (index, worker, KVW_EXACT_ENGINE_MASK, 3). Sources of different groups
 * (KVW_KVINDEX_GROUP: 0 to 7, 8 to 15) never wait for each other: the requirement of a group
 * applies to the group's own blocks. */
void kvw_kvindex_require(
	struct kvw_kvindex *index, uint32_t worker, uint32_t among, uint32_t sources);

/* Finds the key of an engine hash in any tier. KVW_ENOTFOUND: unknown. */
enum kvw_err kvw_kvindex_key_of(struct kvw_kvindex *index, struct kvw_kvindex_from from,
	uint64_t hash, uint64_t *key) KVW_MUST_CHECK;

/* Stores blocks whose keys cannot be computed before `parent` is known: keeps them with a copy of
 * the payload, and calls the keys function when the parent is stored. Removals and clears that come
 * before that apply. Records without room, or that wait too long, are dropped. now_ns must not
 * decrease. */
void kvw_kvindex_park(struct kvw_kvindex *index, struct kvw_kvindex_from from,
	const struct kvw_kvindex_blocks *blocks, uint64_t parent, const void *payload,
	size_t payload_bytes, int64_t now_ns);

/* Drops records that were parked too long, and reclaims some stale entries of purges and clears.
 * Called periodically. */
void kvw_kvindex_tick(struct kvw_kvindex *index, int64_t now_ns);

/* --- readers --- */

/* Finds how many leading blocks of a chain each worker holds, in any tier and by any source, or by
 * all required sources together (kvw_kvindex_require); a block in several tiers counts in the
 * fastest. Fills *hits. */
void kvw_kvindex_match(struct kvw_kvindex *index, uint32_t space, const uint64_t *keys,
	uint32_t count, uint32_t block_tokens, struct kvw_kvindex_hits *hits);

/* Returns how many blocks a worker holds in a tier, by that of `sources` (bit s for source s) with
 * the most. */
uint32_t kvw_kvindex_held(
	const struct kvw_kvindex *index, uint32_t worker, uint32_t sources, enum kvw_tier tier);

/* Fills *out. Each number is exact; while a writer runs they may be of different moments. */
void kvw_kvindex_stats(struct kvw_kvindex *index, struct kvw_kvindex_stats *out);

#endif
