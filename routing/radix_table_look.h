/*
 * radix_table_look.h - looking at a window of the prefix tree's table, written once for every
 * instruction set: radix_table.c and radix_table_avx512.c give the comparison of a group with its
 * bucket.
 */
#ifndef KVW_RADIX_TABLE_LOOK_H
#define KVW_RADIX_TABLE_LOOK_H

#include "routing/radix_table.h"

#define TAG_MASK   UINT64_C(0xFFFFFE00) /* bits of an entry that hold bits of its own hash */
#define SPILLED    UINT64_C(0x100)      /* it was placed by its own hash */
#define PLACE_BIT  5
#define GROUP_MASK ((uint32_t)KVW_TABLE_GROUP - 1)
#define MOST       255 /* of a count */
#define ENTRY_MASK (TAG_MASK | (uint64_t)GROUP_MASK << PLACE_BIT)
#define EACH(byte) ((byte) * UINT64_C(0x0101010101010101))

static inline uint64_t load_entry(const struct kvw_bucket *bucket, unsigned i)
{
	return atomic_load_explicit(&bucket->entries[i], memory_order_acquire);
}

static inline uint64_t load_counts(const struct kvw_bucket *bucket)
{
	return atomic_load_explicit(&bucket->counts, memory_order_acquire);
}

/* Entries that passed a bucket. */
static inline uint32_t passed(const struct kvw_bucket *bucket)
{
	return (uint32_t)load_counts(bucket) & MOST;
}

/* Notes what chunk `at` of a window begins, in the order of chunks. */
static inline void note(struct kvw_table_found *found, uint32_t at, uint64_t entry)
{
	uint32_t place = found->count;

	while (place > 0 && found->at[place - 1] > at)
		place--;
	if (place > 0 && found->at[place - 1] == at)
		return; /* entered twice: either will do */
	for (uint32_t i = found->count++; i > place; i--) {
		found->at[i] = found->at[i - 1];
		found->entries[i] = found->entries[i - 1];
	}
	found->at[place] = at;
	found->entries[place] = entry;
}

#define CROWDED (1u << KVW_BUCKET_ENTRIES) /* bit in what `group` returns: the bucket's counts are not all 0 */

/* How one instruction set compares. Bit i of the answer is entry i of the bucket. */
struct look_ops {
	/* Entries that begin at one of `count` chunks of a group, and CROWDED. */
	unsigned (*group)(const struct kvw_table *table, const struct kvw_bucket *bucket,
		const struct kvw_chunk *group, uint32_t count);
	/* Entries that have the tag and place of `wanted`. */
	unsigned (*own)(const struct kvw_bucket *bucket, uint64_t wanted);
};

#define LOOK_INLINE static inline __attribute__((always_inline))

/* The entry of a chunk that was placed by its own hash; 0: none. */
LOOK_INLINE uint64_t find_spilled(const struct look_ops *ops, const struct kvw_table *table,
	uint64_t spread, uint32_t place)
{
	uint64_t wanted = (spread & TAG_MASK) | place << PLACE_BIT;
	const struct kvw_bucket *bucket = &table->buckets[kvw_table_home(table, spread)];

	for (unsigned probes = 0; probes < KVW_TABLE_PROBES; probes++, bucket++) {
		unsigned match = ops->own(bucket, wanted);

		if (match != 0)
			return load_entry(bucket, (unsigned)__builtin_ctz(match));
		if (passed(bucket) == 0)
			break;
	}
	return 0;
}

/* Bit by bit, the places of a group at which nodes may begin that spilled. */
static inline uint64_t spilled_places(const struct kvw_bucket *bucket, uint32_t count)
{
	uint64_t counts = load_counts(bucket);

	/* The top bit of every byte that is not 0, and these eight bits together. */
	counts = (((counts & EACH(0x7F)) + EACH(0x7F)) | counts) & EACH(0x80);
	return (counts >> 7) * UINT64_C(0x0102040810204080) >> 56 & ((1u << count) - 1);
}

/* Chunks of the window, bit by bit, that may begin a node which was placed by its own hash. */
LOOK_INLINE void look_for_spilled(const struct look_ops *ops, const struct kvw_table *table,
	const struct kvw_chunk *chunks, uint64_t places, struct kvw_table_found *found,
	uint32_t first)
{
	for (uint32_t i = 0; i < found->count; i++)
		places &= ~(UINT64_C(1) << (found->at[i] - first));
	for (uint64_t m = places; m != 0; m &= m - 1) {
		uint64_t hash = chunks[first + (unsigned)__builtin_ctzll(m)].hash;

		kvw_table_prefetch(table, kvw_table_home(table, kvw_table_spread(table, hash)));
	}
	for (uint64_t m = places; m != 0; m &= m - 1) {
		uint32_t at = first + (unsigned)__builtin_ctzll(m);
		uint64_t entry = find_spilled(
			ops, table, kvw_table_spread(table, chunks[at].hash), at & GROUP_MASK);

		if (entry != 0)
			note(found, at, entry);
	}
}

/* Chunks of the group that begins at chunk i of a window. */
static inline uint32_t group_count(const struct kvw_table_asked *asked, uint32_t i)
{
	return asked->count - i < KVW_TABLE_GROUP ? asked->count - i : KVW_TABLE_GROUP;
}

/* Chunks of a window before `end`, bit by bit. */
static inline uint64_t before(uint32_t end, const struct kvw_table_asked *asked)
{
	uint32_t count = end > asked->first ? end - asked->first : 0;

	return count < KVW_TABLE_WINDOW ? (UINT64_C(1) << count) - 1 : UINT64_MAX;
}

/* All groups are compared before any answer is looked at: which of them name a node cannot be guessed,
 * and their lines are all on their way. */
LOOK_INLINE void look(const struct look_ops *ops, const struct kvw_table *table,
	const struct kvw_chunk *chunks, const struct kvw_table_asked *asked,
	struct kvw_table_found *found)
{
	uint64_t groups = 0;  /* a byte for each group */
	uint64_t spilled = 0; /* a bit for each chunk */
	uint32_t end = asked->end;

	for (uint32_t i = 0; i < asked->count; i += KVW_TABLE_GROUP)
		groups |= (uint64_t)ops->group(table,
				  &table->buckets[asked->homes[i / KVW_TABLE_GROUP]],
				  chunks + asked->first + i, group_count(asked, i))
			  << i;
	for (uint64_t m = groups & EACH(CROWDED); m != 0; m &= m - 1) {
		uint32_t i = (uint32_t)__builtin_ctzll(m) & ~GROUP_MASK;

		spilled |= spilled_places(&table->buckets[asked->homes[i / KVW_TABLE_GROUP]],
				   group_count(asked, i))
			   << i;
	}
	found->count = 0;
	for (uint64_t matches = groups & ~EACH(CROWDED); matches != 0; matches &= matches - 1) {
		uint32_t bit = (uint32_t)__builtin_ctzll(matches);
		uint32_t group = bit / KVW_TABLE_GROUP;
		uint32_t first = asked->first + group * KVW_TABLE_GROUP;
		uint64_t entry =
			load_entry(&table->buckets[asked->homes[group]], bit % KVW_TABLE_GROUP);
		uint32_t at = first + kvw_entry_place(entry);

		if (first >= end && (spilled & before(first, asked)) == 0)
			break; /* no run arrives here */
		if (at >= asked->first + asked->count || entry == 0)
			continue; /* it has changed meanwhile */
		note(found, at, entry);
		if (at + kvw_entry_length(entry) >= end)
			end = at + kvw_entry_length(entry) + 1;
	}
	if ((spilled & before(end, asked)) != 0)
		look_for_spilled(ops, table, chunks, spilled, found, asked->first);
}

#endif
