/*
 * radix_table.h - maps the first chunk of a node to the node.
 *
 * One flat hash table of buckets, each one cache line: seven entries and a word of counts. An
 * entry's *group*, the eight consecutive chunks of a prompt (0 to 7, 8 to 15, ...) around its
 * chunk, determines its bucket: hashes are cumulative, so all prompts that contain the chunk agree
 * on the hash of the group's first chunk, and that hash chooses the bucket. A prompt of 64 chunks
 * reads eight lines to find every node on its path, all prefetched at once, where a table by the
 * chunk's own hash would read 64.
 *
 * If thousands of prompts part within one group (after a shared system prompt), its bucket is full.
 * The other entries spill: they are placed by their own hash, in that bucket or the next ones with
 * room. The group's bucket counts the spilled entries, by place in the group, and only if the count
 * is not 0 is a chunk looked up by its own hash. Each bucket also counts the entries that passed it
 * because it was full.
 *
 * Removing clears an entry and decrements the counts: there are no tombstones and no entry ever
 * moves, so readers need no lock. A writer increments counts before it stores an entry and clears
 * an entry before it decrements.
 *
 * An entry is one word: node, length of its run, place in its group, whether it spilled, and 23
 * bits of its own hash.
 *
 * The table is cut into shards of consecutive buckets, each with its own lock for writers; a writer
 * never holds two. After its last bucket a shard has as many spare buckets as an entry may be
 * displaced, so probing never wraps around.
 */
#ifndef KVW_RADIX_TABLE_H
#define KVW_RADIX_TABLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "kvway/err.h"
#include "kvway/route_request.h"
#include "routing/prefetch.h"

#define KVW_TABLE_GROUP      8  /* chunks */
#define KVW_TABLE_WINDOW     64 /* chunks looked up at once */
#define KVW_TABLE_GROUPS     (KVW_TABLE_WINDOW / KVW_TABLE_GROUP)
#define KVW_BUCKET_ENTRIES   7
#define KVW_BUCKET_FILL      2  /* entries per bucket that the table is sized for */
#define KVW_TABLE_PROBES     16 /* most buckets that an entry is displaced */
#define KVW_TABLE_SHARD_BITS 6  /* at most */

struct kvw_bucket {
	_Alignas(64) _Atomic uint64_t entries[KVW_BUCKET_ENTRIES]; /* 0: free */
	/* Byte 0: entries that passed this bucket because it was full, and spilled entries of place
	 * 0. Byte p: spilled entries of place p in the groups of this bucket; a count of 255 is
	 * never changed again. */
	_Atomic uint64_t counts;
};

/* Contents of a table. */
struct kvw_table_use {
	uint64_t nodes;
	uint64_t chunks;  /* chunks in their runs */
	uint64_t removed; /* chunks of nodes that were removed, since start */
};

struct kvw_table_shard {
	/* Guards writes to the members below and to the shard's buckets. */
	_Alignas(64) atomic_bool lock;
	_Atomic uint64_t nodes, chunks, removed; /* this shard's part of kvw_table_use */
};

/* A window of a prompt whose lines are being prefetched. */
struct kvw_table_asked {
	uint32_t first; /* index of its first chunk, a multiple of KVW_TABLE_GROUP */
	uint32_t count; /* chunks */
	/* The first chunk at which no node of the path can begin, as far as is known yet. */
	uint32_t end;
	uint32_t homes[KVW_TABLE_GROUPS];
};

/* The nodes that begin in a window, ascending by chunk. */
struct kvw_table_found {
	uint32_t count;
	uint32_t at[KVW_TABLE_WINDOW];
	uint64_t entries[KVW_TABLE_WINDOW];
};

struct kvw_table {
	struct kvw_bucket *buckets;
	uint32_t shard_bits;    /* there are 2^shard_bits shards */
	uint32_t shard_buckets; /* number of buckets of each shard, without its spare ones */
	/* 2^64 / (buckets of each shard, spare ones included), rounded up */
	uint64_t shard_inverse;
	uint64_t seed;
	struct kvw_table_shard shards[1 << KVW_TABLE_SHARD_BITS];
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

/* Returns the place of the node's first chunk in its group. */
static inline uint32_t kvw_entry_place(uint64_t entry)
{
	return (uint32_t)entry >> 5 & (KVW_TABLE_GROUP - 1);
}

/* Spreads a hash over all bits, since the hashes of chunks may come from clients. */
static inline uint64_t kvw_table_spread(const struct kvw_table *table, uint64_t hash)
{
	uint64_t x = (hash ^ table->seed) * UINT64_C(0x9E3779B97F4A7C15);

	return x ^ x >> 32;
}

/* Returns the bucket to which a spread hash belongs. Its upper half decides, so that a node with
 * the upper half of its group's hash can be placed in a table of any size. */
static inline uint32_t kvw_table_home(const struct kvw_table *table, uint64_t spread)
{
	uint64_t shard = spread >> 32 >> (32 - table->shard_bits);
	uint64_t place = (uint32_t)(spread >> 32 << table->shard_bits);

	return (uint32_t)(shard * (table->shard_buckets + KVW_TABLE_PROBES) +
			  (place * table->shard_buckets >> 32));
}

/* Returns the bucket of the group of chunk `at`. */
static inline uint32_t kvw_table_group_home(
	const struct kvw_table *table, const struct kvw_chunk *chunks, uint32_t at)
{
	uint64_t group = chunks[at & ~(uint32_t)(KVW_TABLE_GROUP - 1)].hash;

	return kvw_table_home(table, kvw_table_spread(table, group));
}

static inline void kvw_table_prefetch(const struct kvw_table *table, uint32_t home)
{
	__builtin_prefetch(&table->buckets[home]);
}

/* Returns the shard of a bucket. The division by the number of buckets of a shard is a
 * multiplication, exact for 32 bits. */
static inline uint32_t kvw_table_shard(const struct kvw_table *table, uint32_t bucket)
{
	__extension__ typedef unsigned __int128 wide;

	return (uint32_t)((wide)table->shard_inverse * bucket >> 64);
}

/* Prefetches a bucket that will be written, and its lock. `home` may be stale and invalid. */
static inline void kvw_table_prefetch_write(const struct kvw_table *table, uint32_t home)
{
	uint32_t shard = kvw_table_shard(table, home) & ((1u << KVW_TABLE_SHARD_BITS) - 1);

	kvw_prefetch_write(&table->buckets[home]);
	kvw_prefetch_write(&table->shards[shard]);
}

/* Returns the size of a table in bytes, a multiple of 64. */
uint64_t kvw_table_bytes(uint32_t shard_bits, uint32_t shard_buckets);

/* Initializes the table in zeroed memory of kvw_table_bytes(...), aligned to 64. */
void kvw_table_init(struct kvw_table *table, void *memory, uint32_t shard_bits,
	uint32_t shard_buckets, uint64_t seed);

/* Prefetches the lines for kvw_table_look of the window that begins at chunk `first` of a chain.
 * The caller may lower `end` afterwards. */
void kvw_table_ask(const struct kvw_table *table, const struct kvw_chunk *chunks, uint32_t count,
	uint32_t first, struct kvw_table_asked *asked);

/* Finds the nodes that begin in a prefetched window, up to the end of a path that reaches the
 * window: nodes after a group that no run reaches are left out. With a probability of about 2^-25 a
 * found node begins with another chunk. */
void kvw_table_look(const struct kvw_table *table, const struct kvw_chunk *chunks,
	const struct kvw_table_asked *asked, struct kvw_table_found *found);

/* Enters a node that begins at chunk `at` of a chain, with a run of `length` < 32 chunks. Sets
 * *home, the bucket of its group (eight consecutive chunks, as above). KVW_EINVAL: such a node
 * exists. KVW_ELIMIT: no room. */
enum kvw_err kvw_table_insert(struct kvw_table *table, const struct kvw_chunk *chunks, uint32_t at,
	uint32_t node, uint32_t length, uint32_t *home) KVW_MUST_CHECK;

/* Does the same for a node of whose group only the upper half of its spread hash is known. hash: of
 * the node's first chunk; place: of that chunk in its group. */
enum kvw_err kvw_table_enter(struct kvw_table *table, uint64_t hash, uint32_t group, uint32_t place,
	uint32_t node, uint32_t length) KVW_MUST_CHECK;

/* Counts the table's contents. While writers run, some of their changes may be missing. */
void kvw_table_count(const struct kvw_table *table, struct kvw_table_use *out);

/* Removes the entry of exactly this node, if it exists. hash: of its first chunk; home: from
 * kvw_table_insert. */
void kvw_table_remove(struct kvw_table *table, uint64_t hash, uint32_t home, uint32_t node);

#endif
