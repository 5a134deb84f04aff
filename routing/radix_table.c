/*
 * radix_table.c - buckets and their fingerprints; radix_table.h tells the layout.
 */
#include "radix_table.h"

#include "spin.h"

#define PASSED_UNIT (UINT64_C(1) << 56)
#define MAX_PASSED  255
#define TAG_MASK    UINT64_C(0xFFFFFC00) /* bits of an entry that hold hash bits */

static uint32_t passed(uint64_t marks)
{
	return (uint32_t)(marks >> 56);
}

static uint64_t load_marks(const struct kvw_table *table, uint64_t at)
{
	return atomic_load_explicit(&table->marks[at], memory_order_acquire);
}

static void store_marks(struct kvw_table *table, uint64_t at, uint64_t marks)
{
	atomic_store_explicit(&table->marks[at], marks, memory_order_release);
}

static uint64_t bucket_count(uint32_t shard_bits, uint32_t shard_buckets)
{
	return ((uint64_t)shard_buckets + KVW_TABLE_PROBES) << shard_bits;
}

uint64_t kvw_table_bytes(uint32_t shard_bits, uint32_t shard_buckets)
{
	uint64_t buckets = bucket_count(shard_bits, shard_buckets);

	return (buckets * sizeof(uint64_t) + 63) / 64 * 64 + buckets * sizeof(struct kvw_bucket);
}

void kvw_table_init(struct kvw_table *table, void *memory, uint32_t shard_bits,
	uint32_t shard_buckets, uint64_t seed)
{
	table->buckets = memory;
	table->marks = (_Atomic uint64_t *)(void *)(table->buckets +
						    bucket_count(shard_bits, shard_buckets));
	table->shard_bits = shard_bits;
	table->shard_buckets = shard_buckets;
	table->seed = seed;
	for (uint32_t i = 0; i < 1u << KVW_TABLE_SHARD_BITS; i++)
		atomic_flag_clear(&table->locks[i].lock);
}

static uint64_t find_in(const struct kvw_bucket *bucket, uint64_t marks, uint64_t spread)
{
	uint64_t m = kvw_marks_match(marks, kvw_table_fingerprint(spread));

	for (; m != 0; m &= m - 1) {
		uint64_t entry = atomic_load_explicit(
			&bucket->entries[__builtin_ctzll(m) >> 3], memory_order_acquire);

		if (((entry ^ spread) & TAG_MASK) == 0 && kvw_entry_node(entry) != 0)
			return entry;
	}
	return 0;
}

uint64_t kvw_table_find(const struct kvw_table *table, uint64_t hash)
{
	uint64_t spread = kvw_table_spread(table, hash);
	uint64_t at = kvw_table_home(table, spread);

	for (unsigned probes = 0; probes < KVW_TABLE_PROBES; probes++) {
		uint64_t marks = load_marks(table, at);
		uint64_t entry = find_in(&table->buckets[at], marks, spread);

		if (entry != 0 || passed(marks) == 0)
			return entry;
		at++;
	}
	return 0;
}

static atomic_flag *shard_lock(struct kvw_table *table, uint64_t spread)
{
	return &table->locks[kvw_table_shard_of(table, spread)].lock;
}

/* First bucket with a free slot. Lock held. False: all near ones are full. */
static bool find_room(struct kvw_table *table, uint64_t home, uint64_t *at, unsigned *slot)
{
	*at = home;
	for (unsigned probes = 0; probes < KVW_TABLE_PROBES; probes++) {
		uint64_t marks = load_marks(table, *at);

		for (unsigned i = 0; i < KVW_BUCKET_ENTRIES; i++)
			if ((marks >> (8 * i) & 0xFF) == 0) {
				*slot = i;
				return true;
			}
		if (passed(marks) == MAX_PASSED)
			return false;
		++*at;
	}
	return false;
}

/* Adds `unit` to the counts of the buckets from home up to, not including, `end`. Lock held. */
static void count_passed(struct kvw_table *table, uint64_t home, uint64_t end, uint64_t unit)
{
	for (uint64_t at = home; at != end; at++)
		store_marks(table, at, load_marks(table, at) + unit);
}

enum kvw_err kvw_table_insert(
	struct kvw_table *table, uint64_t hash, uint32_t node, uint32_t length, uint32_t offset)
{
	uint64_t spread = kvw_table_spread(table, hash);
	uint64_t home = kvw_table_home(table, spread);
	enum kvw_err err = KVW_OK;
	uint64_t at = 0;
	unsigned slot = 0;

	kvw_spin_lock(shard_lock(table, spread));
	if (kvw_table_find(table, hash) != 0) {
		err = KVW_EINVAL;
	} else if (!find_room(table, home, &at, &slot)) {
		err = KVW_ELIMIT;
	} else {
		atomic_store_explicit(&table->buckets[at].entries[slot],
			(uint64_t)node << 32 | (spread & TAG_MASK) | offset << 5 | length,
			memory_order_release);
		store_marks(table, at,
			load_marks(table, at) | kvw_table_fingerprint(spread) << (8 * slot));
		count_passed(table, home, at, PASSED_UNIT);
	}
	kvw_spin_unlock(shard_lock(table, spread));
	return err;
}

/* The slot of exactly this node. Lock held. */
static bool find_slot(struct kvw_table *table, uint64_t home, uint64_t spread, uint32_t node,
	uint64_t *at, unsigned *slot)
{
	*at = home;
	for (unsigned probes = 0; probes < KVW_TABLE_PROBES; probes++) {
		struct kvw_bucket *bucket = &table->buckets[*at];
		uint64_t marks = load_marks(table, *at);
		uint64_t m = kvw_marks_match(marks, kvw_table_fingerprint(spread));

		for (; m != 0; m &= m - 1) {
			*slot = (unsigned)__builtin_ctzll(m) >> 3;
			if (kvw_entry_node(atomic_load_explicit(
				    &bucket->entries[*slot], memory_order_relaxed)) == node)
				return true;
		}
		if (passed(marks) == 0)
			return false;
		++*at;
	}
	return false;
}

void kvw_table_remove(struct kvw_table *table, uint64_t hash, uint32_t node)
{
	uint64_t spread = kvw_table_spread(table, hash);
	uint64_t home = kvw_table_home(table, spread);
	uint64_t at = 0;
	unsigned slot = 0;

	kvw_spin_lock(shard_lock(table, spread));
	if (find_slot(table, home, spread, node, &at, &slot)) {
		store_marks(table, at, load_marks(table, at) & ~(UINT64_C(0xFF) << (8 * slot)));
		atomic_store_explicit(&table->buckets[at].entries[slot], 0, memory_order_release);
		count_passed(table, home, at, (uint64_t)0 - PASSED_UNIT);
	}
	kvw_spin_unlock(shard_lock(table, spread));
}
