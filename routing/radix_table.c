/*
 * radix_table.c - buckets and their fingerprints; radix_table.h tells the layout.
 */
#include "radix_table.h"

#include "spin.h"

#define LOW_BITS    UINT64_C(0x0001010101010101) /* lowest bit of each fingerprint */
#define HIGH_BITS   UINT64_C(0x0080808080808080)
#define PASSED_UNIT (UINT64_C(1) << 56)
#define MAX_PASSED  255
#define MAX_PROBES  32                   /* buckets that an insert looks at before it gives up */
#define TAG_MASK    UINT64_C(0xFFFFFF00) /* bits of an entry that hold hash bits */

/* What of a hash is stored: 8 bits beside the entries, 24 in them. */
static uint64_t fingerprint_of(uint64_t spread)
{
	uint64_t byte = spread >> 32 & 0xFF; /* low bits of the half that chooses the bucket */

	return byte == 0 ? 1 : byte;
}

static uint64_t tag_of(uint64_t spread)
{
	return spread & TAG_MASK;
}

/* High bit set in each fingerprint byte equal to `fp`; now and then in one more, above a match. */
static uint64_t matches(uint64_t meta, uint64_t fp)
{
	uint64_t x = (meta & UINT64_C(0x00FFFFFFFFFFFFFF)) ^ fp * LOW_BITS;

	return (x - LOW_BITS) & ~x & HIGH_BITS;
}

static uint32_t passed(uint64_t meta)
{
	return (uint32_t)(meta >> 56);
}

/* Probing stays within a shard. */
static uint64_t next_bucket(const struct kvw_table *table, uint64_t at)
{
	return (at + 1) % table->shard_buckets == 0 ? at + 1 - table->shard_buckets : at + 1;
}

void kvw_table_init(struct kvw_table *table)
{
	for (uint32_t i = 0; i < KVW_TABLE_SHARDS; i++)
		atomic_flag_clear(&table->locks[i].lock);
}

static uint64_t find_in(const struct kvw_bucket *bucket, uint64_t meta, uint64_t spread)
{
	for (uint64_t m = matches(meta, fingerprint_of(spread)); m != 0; m &= m - 1) {
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

	for (unsigned probes = 0; probes < MAX_PROBES; probes++) {
		const struct kvw_bucket *bucket = &table->buckets[at];
		uint64_t meta = atomic_load_explicit(&bucket->meta, memory_order_acquire);
		uint64_t entry = find_in(bucket, meta, spread);

		if (entry != 0 || passed(meta) == 0)
			return entry;
		at = next_bucket(table, at);
	}
	return 0;
}

static atomic_flag *shard_lock(struct kvw_table *table, uint64_t home)
{
	return &table->locks[home / table->shard_buckets].lock;
}

/* First bucket with a free slot. Lock held. False: all near ones are full. */
static bool find_room(struct kvw_table *table, uint64_t home, uint64_t *at, unsigned *slot)
{
	*at = home;
	for (unsigned probes = 0; probes < MAX_PROBES; probes++) {
		uint64_t meta =
			atomic_load_explicit(&table->buckets[*at].meta, memory_order_relaxed);

		for (unsigned i = 0; i < KVW_BUCKET_ENTRIES; i++)
			if ((meta >> (8 * i) & 0xFF) == 0) {
				*slot = i;
				return true;
			}
		if (passed(meta) == MAX_PASSED)
			return false;
		*at = next_bucket(table, *at);
	}
	return false;
}

/* Adds `unit` to the counts of the buckets from home up to, not including, `end`. Lock held. */
static void count_passed(struct kvw_table *table, uint64_t home, uint64_t end, uint64_t unit)
{
	for (uint64_t at = home; at != end; at = next_bucket(table, at)) {
		_Atomic uint64_t *meta = &table->buckets[at].meta;

		atomic_store_explicit(meta, atomic_load_explicit(meta, memory_order_relaxed) + unit,
			memory_order_release);
	}
}

enum kvw_err kvw_table_insert(
	struct kvw_table *table, uint64_t hash, uint32_t node, uint32_t length, uint32_t offset)
{
	uint64_t spread = kvw_table_spread(table, hash);
	uint64_t home = kvw_table_home(table, spread);
	enum kvw_err err = KVW_OK;
	uint64_t at = 0;
	unsigned slot = 0;

	kvw_spin_lock(shard_lock(table, home));
	if (kvw_table_find(table, hash) != 0) {
		err = KVW_EINVAL;
	} else if (!find_room(table, home, &at, &slot)) {
		err = KVW_ELIMIT;
	} else {
		struct kvw_bucket *bucket = &table->buckets[at];
		uint64_t meta = atomic_load_explicit(&bucket->meta, memory_order_relaxed);

		atomic_store_explicit(&bucket->entries[slot],
			(uint64_t)node << 32 | tag_of(spread) | offset << 4 | length,
			memory_order_release);
		atomic_store_explicit(&bucket->meta, meta | fingerprint_of(spread) << (8 * slot),
			memory_order_release);
		count_passed(table, home, at, PASSED_UNIT);
	}
	kvw_spin_unlock(shard_lock(table, home));
	return err;
}

/* The slot of exactly this node. Lock held. */
static bool find_slot(struct kvw_table *table, uint64_t home, uint64_t spread, uint32_t node,
	uint64_t *at, unsigned *slot)
{
	*at = home;
	for (unsigned probes = 0; probes < MAX_PROBES; probes++) {
		struct kvw_bucket *bucket = &table->buckets[*at];
		uint64_t meta = atomic_load_explicit(&bucket->meta, memory_order_relaxed);

		for (uint64_t m = matches(meta, fingerprint_of(spread)); m != 0; m &= m - 1) {
			*slot = (unsigned)__builtin_ctzll(m) >> 3;
			if (kvw_entry_node(atomic_load_explicit(
				    &bucket->entries[*slot], memory_order_relaxed)) == node)
				return true;
		}
		if (passed(meta) == 0)
			return false;
		*at = next_bucket(table, *at);
	}
	return false;
}

void kvw_table_remove(struct kvw_table *table, uint64_t hash, uint32_t node)
{
	uint64_t spread = kvw_table_spread(table, hash);
	uint64_t home = kvw_table_home(table, spread);
	uint64_t at = 0;
	unsigned slot = 0;

	kvw_spin_lock(shard_lock(table, home));
	if (find_slot(table, home, spread, node, &at, &slot)) {
		struct kvw_bucket *bucket = &table->buckets[at];
		uint64_t meta = atomic_load_explicit(&bucket->meta, memory_order_relaxed);

		atomic_store_explicit(&bucket->meta, meta & ~(UINT64_C(0xFF) << (8 * slot)),
			memory_order_release);
		atomic_store_explicit(&bucket->entries[slot], 0, memory_order_release);
		count_passed(table, home, at, (uint64_t)0 - PASSED_UNIT);
	}
	kvw_spin_unlock(shard_lock(table, home));
}
