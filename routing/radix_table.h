/*
 * radix_table.h - from the hash of a node's first chunk to the node.
 *
 * One flat open-addressing table of buckets with seven entries. Each bucket has a word of marks,
 * apart from the entries: a byte of fingerprint for each, and a count of the entries that found
 * the bucket full and went on to the next one. The marks of a million nodes are 2 MB and stay
 * in the core's own cache, so asking for a hash that begins no node, which is what most look-ups
 * of a walk do, costs a few instructions; only what the marks admit reads an entry.
 *
 * Removing clears a slot and takes one off the counts on its way: there are no tombstones and no
 * entry ever moves, so readers need no lock. Writers store the entry before its mark.
 *
 * An entry is one word: node, length of its run, how far into its parent's run it hangs, 22 bits
 * of the hash (the fingerprint has 8 others). Walking a path needs no more than the table.
 *
 * The table is cut into shards of consecutive buckets, each with its own lock for writers. The
 * shard follows from the hash of the *node*, not of the prompt's beginning: hashes are cumulative,
 * so nodes below one shared system prompt spread over all shards. Behind its last bucket a shard
 * has as many spare ones as an entry may go on, so probing never turns around.
 */
#ifndef KVW_RADIX_TABLE_H
#define KVW_RADIX_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kvway/err.h"

#define KVW_BUCKET_ENTRIES   7
#define KVW_BUCKET_FILL      4  /* entries per bucket that the table is sized for */
#define KVW_TABLE_PROBES     16 /* buckets that an entry may be away from its place */
#define KVW_TABLE_SHARD_BITS 6  /* at most */

/* What the marks of a bucket are about. */
struct kvw_bucket {
	_Alignas(64) _Atomic uint64_t entries[KVW_BUCKET_ENTRIES];
};

struct kvw_table_shard {
	_Alignas(64) atomic_flag lock; /* guards writes to the shard's buckets */
};

struct kvw_table {
	struct kvw_bucket *buckets; /* [kvw_table_buckets(...)] */
	_Atomic uint64_t *marks;    /* [the same] bytes 0..6: fingerprints, 0 = free;
	                               byte 7: entries that passed on */
	uint32_t shard_bits;        /* there are 2^shard_bits shards */
	uint32_t shard_buckets;     /* places of each, without its spare buckets */
	uint64_t seed;
	struct kvw_table_shard locks[1 << KVW_TABLE_SHARD_BITS];
};

/* Entries: 0 is none. */
static inline uint32_t kvw_entry_node(uint64_t entry)
{
	return (uint32_t)(entry >> 32);
}

static inline uint32_t kvw_entry_length(uint64_t entry)
{
	return (uint32_t)entry & 31;
}

/* Chunks from its parent's first one to its own; 0 for a node that begins prompts. */
static inline uint32_t kvw_entry_offset(uint64_t entry)
{
	return (uint32_t)entry >> 5 & 31;
}

/* A hash spread over all bits; what chunks carry may come from clients. */
static inline uint64_t kvw_table_spread(const struct kvw_table *table, uint64_t hash)
{
	uint64_t x = (hash ^ table->seed) * UINT64_C(0x9E3779B97F4A7C15);

	return x ^ x >> 32;
}

static inline uint32_t kvw_table_shard_of(const struct kvw_table *table, uint64_t spread)
{
	return (uint32_t)(spread >> 32 >> (32 - table->shard_bits));
}

static inline uint64_t kvw_table_home(const struct kvw_table *table, uint64_t spread)
{
	uint64_t place = spread << table->shard_bits >> 32;

	return (uint64_t)kvw_table_shard_of(table, spread) *
		       (table->shard_buckets + KVW_TABLE_PROBES) +
	       (place * table->shard_buckets >> 32);
}

static inline void kvw_table_prefetch_marks(const struct kvw_table *table, uint64_t spread)
{
	__builtin_prefetch((const void *)&table->marks[kvw_table_home(table, spread)]);
}

static inline void kvw_table_prefetch_entries(const struct kvw_table *table, uint64_t spread)
{
	__builtin_prefetch(&table->buckets[kvw_table_home(table, spread)]);
}

/* High bit set in each fingerprint byte equal to `fp`; now and then in one more, above a match. */
static inline uint64_t kvw_marks_match(uint64_t marks, uint64_t fp)
{
	const uint64_t low = UINT64_C(0x0001010101010101);
	uint64_t x = (marks & UINT64_C(0x00FFFFFFFFFFFFFF)) ^ fp * low;

	return (x - low) & ~x & UINT64_C(0x0080808080808080);
}

/* 8 bits beside the entries; never 0. They are the low bits of the half that chooses the bucket. */
static inline uint64_t kvw_table_fingerprint(uint64_t spread)
{
	uint64_t byte = spread >> 32 & 0xFF;

	return byte == 0 ? 1 : byte;
}

/* Whether find is worth asking about a hash with this home and fingerprint: false is certain, true
 * is right in all but some percent of misses, and then the entries are on their way. */
static inline bool kvw_table_admits(const struct kvw_table *table, uint32_t home, uint64_t print)
{
	const _Atomic uint64_t *marks = &table->marks[home];

	for (unsigned probes = 0; probes < KVW_TABLE_PROBES; probes++) {
		uint64_t word = atomic_load_explicit(&marks[probes], memory_order_relaxed);

		if (kvw_marks_match(word, print) != 0) {
			__builtin_prefetch(&table->buckets[home + probes]);
			return true;
		}
		if (word >> 56 == 0)
			return false;
	}
	return false;
}

/* Bytes of a table, a multiple of 64. */
uint64_t kvw_table_bytes(uint32_t shard_bits, uint32_t shard_buckets);

/* Lays the table into zeroed memory of kvw_table_bytes(...), aligned to 64. */
void kvw_table_init(struct kvw_table *table, void *memory, uint32_t shard_bits,
	uint32_t shard_buckets, uint64_t seed);

/* The entry of a node whose first chunk has this hash; 0: none. */
uint64_t kvw_table_find(const struct kvw_table *table, uint64_t hash);

/* length and offset are below 16. KVW_EINVAL: there is one already. KVW_ELIMIT: no room near its
 * place. */
enum kvw_err kvw_table_insert(struct kvw_table *table, uint64_t hash, uint32_t node,
	uint32_t length, uint32_t offset) KVW_MUST_CHECK;

/* Removes the entry of exactly this node, if it is there. */
void kvw_table_remove(struct kvw_table *table, uint64_t hash, uint32_t node);

#endif
