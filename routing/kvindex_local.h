/*
 * kvindex_local.h - the writer's part of the index: it maps engine hashes to keys.
 *
 * An entry has the state of one engine hash by one source of one worker in one tier: its key and
 * its stores less its removals. Each entry stands for exactly one holder word in the table of keys
 * (kvindex_table.h): freeing an entry, by a removal, for room or after a purge, also drops the
 * word, so the table cannot outgrow the entries.
 *
 * Entries lie in one array, in hash chains by worker, source and engine hash (a hash's tiers are
 * neighbours), and in one list by the time of their last store, whose oldest entries are dropped
 * when the array is full. Chains of blocks are entered from their end, so that a chain's tail is
 * dropped first.
 *
 * A cell is one tier of one source of one worker. A clear increments the cell's generation; entries
 * of older generations are stale, and a sweep over the array finds them, some steps per event. A
 * generation has 16 bits: before any could wrap, the sweep finishes its round at once.
 */
#ifndef KVW_KVINDEX_LOCAL_H
#define KVW_KVINDEX_LOCAL_H

#include "routing/kvindex.h"
#include "routing/kvindex_table.h"

#define KVW_KVLANES ((size_t)KVW_MAX_WORKERS * KVW_KVINDEX_SOURCES)
#define KVW_KVCELLS (KVW_KVLANES * KVW_TIER_COUNT)

struct kvw_kventry {
	uint64_t hash; /* the engine's */
	uint64_t key;  /* the key, mixed with its space */
	uint32_t word; /* the holder word; 0: free */
	uint32_t space;
	uint32_t count; /* stores less removals, > 0 */
	uint32_t next;  /* next entry of its hash chain, or of the free list */
	uint32_t older, newer;
};

struct kvw_kvlocal {
	struct kvw_kvtable table;
	_Atomic uint16_t *generations; /* [KVW_KVCELLS] read by any thread */
	/* [KVW_MAX_WORKERS] sources that count only together; read by any thread */
	_Atomic uint16_t *required;
	/* [KVW_KVCELLS] number of entries of the present generation; read by any thread. */
	_Atomic uint32_t *live;
	struct kvw_kventry *entries; /* [count + 1]; 0 is not used */
	uint32_t *chains;            /* [count] */
	uint32_t count;
	uint32_t fresh; /* first entry that was never used */
	uint32_t free_entries;
	uint32_t oldest, newest;
	uint32_t hand;
	/* increments of generations since the sweep's last round began */
	uint32_t steps_of_generations;
	uint64_t seed;
	_Atomic bool requires;                 /* some worker has required sources */
	_Atomic uint64_t used, stale, dropped; /* entries */
};

/* A lane is one source of one worker. */
static inline uint32_t kvw_kvlane(struct kvw_kvindex_from from)
{
	return from.worker * KVW_KVINDEX_SOURCES + from.source;
}

static inline uint32_t kvw_kvcell(uint32_t lane, uint32_t tier)
{
	return lane * KVW_TIER_COUNT + tier;
}

static inline uint32_t kvw_kvword_cell(uint32_t word)
{
	return (uint32_t)(word & (KVW_KVCELLS - 1));
}

static inline uint16_t kvw_kvgeneration(const struct kvw_kvlocal *local, uint32_t cell)
{
	return atomic_load_explicit(&local->generations[cell], memory_order_relaxed);
}

/* Returns the number of live entries of a cell. */
static inline uint32_t kvw_kvlive(const struct kvw_kvlocal *local, uint32_t cell)
{
	return atomic_load_explicit(&local->live[cell], memory_order_relaxed);
}

/* Returns the holder word that a block stored now would have. */
static inline uint32_t kvw_kvword(const struct kvw_kvlocal *local, uint32_t cell)
{
	return (uint32_t)kvw_kvgeneration(local, cell) << 16 | cell;
}

static inline bool kvw_kvword_alive(const struct kvw_kvlocal *local, uint32_t word)
{
	return kvw_kvgeneration(local, kvw_kvword_cell(word)) == word >> 16;
}

/* Mixes a key with its space, for the table. */
static inline uint64_t kvw_kvkey(uint32_t space, uint64_t key)
{
	return key ^ kvw_kvspread(space, 0);
}

/* Returns the memory in bytes for `count` entries. */
uint64_t kvw_kvlocal_bytes(uint64_t count);

/* Initializes the struct in zeroed memory, aligned to 64. */
void kvw_kvlocal_init(struct kvw_kvlocal *local, void *memory, uint32_t count, uint64_t seed);

void kvw_kvlocal_stored(struct kvw_kvlocal *local, uint32_t lane, uint32_t tier, uint32_t space,
	uint64_t hash, uint64_t key);

/* Removes a stored block. False: there is no such entry. */
bool kvw_kvlocal_removed(
	struct kvw_kvlocal *local, uint32_t lane, uint32_t tier, uint64_t hash) KVW_MUST_CHECK;

/* Finds the key of a hash in any tier. False: there is none. */
bool kvw_kvlocal_key(const struct kvw_kvlocal *local, uint32_t lane, uint64_t hash,
	uint64_t *key) KVW_MUST_CHECK;

/* Sets which of the sources in `among` count only together: those in `sources`. */
void kvw_kvlocal_require(
	struct kvw_kvlocal *local, uint32_t worker, uint32_t among, uint32_t sources);

/* Increments the generations of several lanes, in one tier or all, as one step. */
void kvw_kvlocal_forget(struct kvw_kvlocal *local, uint32_t lane, uint32_t lanes, uint32_t tier);

/* Sweeps this many entries, while any is stale. */
void kvw_kvlocal_sweep(struct kvw_kvlocal *local, uint32_t steps);

/* Finds hits for kvw_kvindex_match, in any thread; `mix` contains the space. */
void kvw_kvmatch(const struct kvw_kvlocal *local, uint64_t mix, const uint64_t *keys,
	uint32_t count, uint32_t block_tokens, struct kvw_kvindex_hits *hits);

#endif
