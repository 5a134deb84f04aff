/*
 * radix_table.h - from the hash of a node's first chunk to the node.
 *
 * One flat open-addressing table, a cache line a bucket: seven entries, a byte of fingerprint for
 * each, and a count of the entries that found the bucket full and went on to the next ones. Most
 * look-ups, hits and misses, read one line. Removing clears a slot and takes one off the counts
 * on its way: there are no tombstones and no entry ever moves, so readers need no lock.
 *
 * An entry is one word: node, length of its run, how far into its parent's run it hangs, 24 bits
 * of the hash (the fingerprint has 8 others). Walking a path needs no more than the table.
 *
 * The table is cut into shards of consecutive buckets, each with its own lock for writers. The
 * shard follows from the hash of the *node*, not of the prompt's beginning: hashes are cumulative,
 * so nodes below one shared system prompt spread over all shards.
 */
#ifndef KVW_RADIX_TABLE_H
#define KVW_RADIX_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kvway/err.h"

#define KVW_BUCKET_ENTRIES 7
#define KVW_BUCKET_FILL    5 /* entries per bucket that the table is sized for */
#define KVW_TABLE_SHARDS   64

/* Readers load `meta`, then an entry; writers store the entry first. */
struct kvw_bucket {
	_Alignas(64) _Atomic uint64_t meta; /* bytes 0..6: fingerprints, 0 = free; 7: passed on */
	_Atomic uint64_t entries[KVW_BUCKET_ENTRIES];
};

struct kvw_table_shard {
	_Alignas(64) atomic_flag lock; /* guards writes to the shard's buckets */
};

struct kvw_table {
	struct kvw_bucket *buckets; /* [shards * shard_buckets], zeroed by the owner's mapping */
	uint32_t shards;
	uint32_t shard_buckets;
	uint64_t seed;
	struct kvw_table_shard locks[KVW_TABLE_SHARDS];
};

/* Entries: 0 is none. */
static inline uint32_t kvw_entry_node(uint64_t entry)
{
	return (uint32_t)(entry >> 32);
}

static inline uint32_t kvw_entry_length(uint64_t entry)
{
	return (uint32_t)entry & 15;
}

/* Chunks from its parent's first one to its own; 0 for a node that begins prompts. */
static inline uint32_t kvw_entry_offset(uint64_t entry)
{
	return (uint32_t)entry >> 4 & 15;
}

/* A hash spread over all bits; what chunks carry may come from clients. */
static inline uint64_t kvw_table_spread(const struct kvw_table *table, uint64_t hash)
{
	uint64_t x = (hash ^ table->seed) * UINT64_C(0x9E3779B97F4A7C15);

	return x ^ x >> 32;
}

static inline uint64_t kvw_table_home(const struct kvw_table *table, uint64_t spread)
{
	return (spread >> 32) * ((uint64_t)table->shards * table->shard_buckets) >> 32;
}

static inline void kvw_table_prefetch(const struct kvw_table *table, uint64_t hash)
{
	__builtin_prefetch(&table->buckets[kvw_table_home(table, kvw_table_spread(table, hash))]);
}

/* buckets: zeroed, shards * shard_buckets of them; sizes are set by the caller. */
void kvw_table_init(struct kvw_table *table);

/* The entry of a node whose first chunk has this hash; 0: none. */
uint64_t kvw_table_find(const struct kvw_table *table, uint64_t hash);

/* length and offset are below 16. KVW_EINVAL: there is one already. KVW_ELIMIT: no room near its
 * place. */
enum kvw_err kvw_table_insert(struct kvw_table *table, uint64_t hash, uint32_t node,
	uint32_t length, uint32_t offset) KVW_MUST_CHECK;

/* Removes the entry of exactly this node, if it is there. */
void kvw_table_remove(struct kvw_table *table, uint64_t hash, uint32_t node);

#endif
