/*
 * radix_table.c - groups, buckets and what spills from them; radix_table.h describes the layout.
 */
#include "routing/spin.h"

#include "routing/radix_table_look.h"

static uint64_t bucket_count(uint32_t shard_bits, uint32_t shard_buckets)
{
	return ((uint64_t)shard_buckets + KVW_TABLE_PROBES) << shard_bits;
}

uint64_t kvw_table_bytes(uint32_t shard_bits, uint32_t shard_buckets)
{
	return bucket_count(shard_bits, shard_buckets) * sizeof(struct kvw_bucket);
}

void kvw_table_init(struct kvw_table *table, void *memory, uint32_t shard_bits,
	uint32_t shard_buckets, uint64_t seed)
{
	table->ops = &kvw_table_base;
#ifdef KVW_HAVE_AVX512
	if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
		__builtin_cpu_supports("bmi2"))
		table->ops = &kvw_table_avx512;
#endif
	table->buckets = memory;
	table->shard_bits = shard_bits;
	table->shard_buckets = shard_buckets;
	table->shard_inverse = UINT64_MAX / (shard_buckets + KVW_TABLE_PROBES) + 1;
	table->seed = seed;
	for (uint32_t i = 0; i < 1u << KVW_TABLE_SHARD_BITS; i++)
		atomic_init(&table->shards[i].lock, false);
}

static void store_entry(struct kvw_bucket *bucket, unsigned i, uint64_t entry)
{
	atomic_store_explicit(&bucket->entries[i], entry, memory_order_release);
}

/* Adds `by` to byte `which` of a bucket's counts. Lock held, so no other thread writes. */
static void change(struct kvw_bucket *bucket, unsigned which, int by)
{
	uint64_t counts = load_counts(bucket) + ((uint64_t)(int64_t)by << 8 * which);

	atomic_store_explicit(&bucket->counts, counts, memory_order_release);
}

/* --- reading --- */

void kvw_table_ask(const struct kvw_table *table, const struct kvw_chunk *chunks, uint32_t count,
	uint32_t first, struct kvw_table_asked *asked)
{
	uint32_t groups = 0;

	asked->first = first;
	asked->end = UINT32_MAX;
	asked->count = count - first < KVW_TABLE_WINDOW ? count - first : KVW_TABLE_WINDOW;
	groups = (asked->count + KVW_TABLE_GROUP - 1) / KVW_TABLE_GROUP;
	table->ops->homes(table, chunks + first, groups, asked->homes);
	for (uint32_t i = 0; i < groups; i++)
		kvw_table_prefetch(table, asked->homes[i]);
	/* Short prompts with a common beginning crowd one group: where they spilled to, at once. */
	for (uint32_t i = 1; i < asked->count && asked->count <= KVW_TABLE_GROUP; i++) {
		uint64_t spread = kvw_table_spread(table, chunks[first + i].hash);

		kvw_table_prefetch(table, kvw_table_home(table, spread));
	}
}

static inline unsigned match_group(const struct kvw_table *table, const struct kvw_bucket *bucket,
	const struct kvw_chunk *group, uint32_t count)
{
	unsigned match = 0;

	/* Without branches: which entry it is, if any, cannot be guessed. */
	for (unsigned i = 0; i < KVW_BUCKET_ENTRIES; i++) {
		uint64_t entry = load_entry(bucket, i);
		uint32_t place = kvw_entry_place(entry);
		uint64_t spread =
			kvw_table_spread(table, group[place < count ? place : 0].hash);

		match |= (unsigned)((((entry ^ spread) & TAG_MASK) == 0) & (place < count) &
				    (kvw_entry_node(entry) != 0))
			 << i;
	}
	return match | (load_counts(bucket) != 0 ? CROWDED : 0);
}

static inline unsigned match_own(const struct kvw_bucket *bucket, uint64_t wanted)
{
	unsigned match = 0;

	for (unsigned i = 0; i < KVW_BUCKET_ENTRIES; i++) {
		uint64_t entry = load_entry(bucket, i);

		match |= (unsigned)(((entry & ENTRY_MASK) == wanted) & (kvw_entry_node(entry) != 0))
			 << i;
	}
	return match;
}

static void homes_of(const struct kvw_table *table, const struct kvw_chunk *chunks, uint32_t groups,
	uint32_t *homes)
{
	for (uint32_t i = 0; i < groups; i++)
		homes[i] = kvw_table_group_home(table, chunks, i * KVW_TABLE_GROUP);
}

static void look_base(const struct kvw_table *table, const struct kvw_chunk *chunks,
	const struct kvw_table_asked *asked, struct kvw_table_found *found)
{
	static const struct look_ops ops = {match_group, match_own};

	look(&ops, table, chunks, asked, found);
}

const struct kvw_table_ops kvw_table_base = {homes_of, look_base};

/* --- writing --- */

/* Locks the shard of a bucket for writes to it. */
static struct kvw_table_shard *lock_shard(struct kvw_table *table, uint32_t bucket)
{
	struct kvw_table_shard *shard = &table->shards[kvw_table_shard(table, bucket)];

	kvw_spin_lock(&shard->lock);
	return shard;
}

static void unlock_shard(struct kvw_table_shard *shard)
{
	kvw_spin_unlock(&shard->lock);
}

static void add_to(_Atomic uint64_t *sum, uint64_t by)
{
	atomic_store_explicit(
		sum, atomic_load_explicit(sum, memory_order_relaxed) + by, memory_order_relaxed);
}

/* Lock held. */
static void count_in(struct kvw_table_shard *shard, uint64_t entry)
{
	add_to(&shard->nodes, 1);
	add_to(&shard->chunks, kvw_entry_length(entry));
}

/* Lock held. */
static void count_out(struct kvw_table_shard *shard, uint64_t entry)
{
	add_to(&shard->nodes, UINT64_MAX);
	add_to(&shard->chunks, -(uint64_t)kvw_entry_length(entry));
	add_to(&shard->removed, kvw_entry_length(entry));
}

void kvw_table_count(const struct kvw_table *table, struct kvw_table_use *out)
{
	*out = (struct kvw_table_use){0};
	for (uint32_t i = 0; i < 1u << table->shard_bits; i++) {
		const struct kvw_table_shard *shard = &table->shards[i];

		out->nodes += atomic_load_explicit(&shard->nodes, memory_order_relaxed);
		out->chunks += atomic_load_explicit(&shard->chunks, memory_order_relaxed);
		out->removed += atomic_load_explicit(&shard->removed, memory_order_relaxed);
	}
}

/* Index of an empty entry, or -1. Sets *twin if one with the same tag and place is there. Lock
 * held. */
static int free_entry(const struct kvw_bucket *bucket, uint64_t wanted, bool *twin)
{
	int room = -1;

	for (unsigned i = 0; i < KVW_BUCKET_ENTRIES; i++) {
		uint64_t entry = load_entry(bucket, i);

		if (entry == 0)
			room = (int)i;
		else if (((entry ^ wanted) & ENTRY_MASK) == 0)
			*twin = true;
	}
	return room;
}

/* Whether all buckets from `home` up to `end` can count one more; adds `by` if so. Lock held. */
static bool count_passed(struct kvw_table *table, uint32_t home, uint32_t end, int by)
{
	for (uint32_t at = home; at != end && by > 0; at++)
		if (passed(&table->buckets[at]) == MOST)
			return false;
	for (uint32_t at = home; at != end; at++)
		change(&table->buckets[at], 0, by);
	return true;
}

/* Places an entry by its own hash. */
static enum kvw_err spill(struct kvw_table *table, uint64_t spread, uint64_t entry)
{
	uint32_t home = kvw_table_home(table, spread);
	struct kvw_table_shard *shard = NULL;
	enum kvw_err err = KVW_ELIMIT;
	bool twin = false;
	uint32_t at = home;
	int room = -1;

	shard = lock_shard(table, home);
	for (; at < home + KVW_TABLE_PROBES; at++) {
		room = free_entry(&table->buckets[at], entry, &twin);
		if (room >= 0 || twin)
			break;
	}
	if (twin) {
		err = KVW_EINVAL;
	} else if (room >= 0 && count_passed(table, home, at, 1)) {
		store_entry(&table->buckets[at], (unsigned)room, entry);
		count_in(shard, entry);
		err = KVW_OK;
	}
	unlock_shard(shard);
	return err;
}

/* Counts one more or one less that spilled from a place of a group. Place 0 is counted as passed. */
static void count_spilled(struct kvw_table *table, uint32_t home, uint32_t place, int by)
{
	struct kvw_bucket *bucket = &table->buckets[home];
	struct kvw_table_shard *shard = NULL;

	if (place == 0)
		return;
	shard = lock_shard(table, home);
	if ((load_counts(bucket) >> 8 * place & MOST) != MOST)
		change(bucket, place, by);
	unlock_shard(shard);
}

/* Places an entry in its group's bucket, or by its own hash where that is full. */
static enum kvw_err enter(struct kvw_table *table, uint64_t spread, uint32_t home, uint32_t place,
	uint32_t node, uint32_t length)
{
	uint64_t entry =
		(uint64_t)node << 32 | (spread & TAG_MASK) | place << PLACE_BIT | length;
	enum kvw_err err = KVW_OK;
	struct kvw_table_shard *shard = NULL;
	bool twin = false;
	int room = -1;

	shard = lock_shard(table, home);
	room = free_entry(&table->buckets[home], entry, &twin);
	if (room >= 0 && !twin) {
		store_entry(&table->buckets[home], (unsigned)room, entry);
		count_in(shard, entry);
	}
	unlock_shard(shard);
	if (twin)
		return KVW_EINVAL;
	if (room >= 0)
		return KVW_OK;
	count_spilled(table, home, place, 1);
	err = spill(table, spread, entry | SPILLED);
	if (err != KVW_OK)
		count_spilled(table, home, place, -1);
	return err;
}

enum kvw_err kvw_table_insert(struct kvw_table *table, const struct kvw_chunk *chunks, uint32_t at,
	uint32_t node, uint32_t length, uint32_t *home)
{
	*home = kvw_table_group_home(table, chunks, at);
	return enter(table, kvw_table_spread(table, chunks[at].hash), *home, at & GROUP_MASK, node, length);
}

enum kvw_err kvw_table_enter(struct kvw_table *table, uint64_t hash, uint32_t group, uint32_t place,
	uint32_t node, uint32_t length)
{
	return enter(table, kvw_table_spread(table, hash), kvw_table_home(table, (uint64_t)group << 32),
		place & GROUP_MASK, node, length);
}

/* Clears the entry of exactly this node, spilled or not as the caller says, if this bucket has it.
 * *entry: what it was. Lock held. */
static bool clear_node(
	struct kvw_bucket *bucket, uint32_t node, uint64_t spilled, uint64_t *entry)
{
	int at = -1;

	for (unsigned i = 0; i < KVW_BUCKET_ENTRIES; i++) {
		uint64_t e = load_entry(bucket, i);

		bool mine = kvw_entry_node(e) == node;
		bool same = (e & SPILLED) == spilled;

		at = (mine & same) ? (int)i : at;
	}
	if (at < 0)
		return false;
	*entry = load_entry(bucket, (unsigned)at);
	store_entry(bucket, (unsigned)at, 0);
	return true;
}

/* Removes an entry that was placed by its own hash. */
static bool remove_spilled(struct kvw_table *table, uint64_t hash, uint32_t node, uint64_t *entry)
{
	uint32_t home = kvw_table_home(table, kvw_table_spread(table, hash));
	struct kvw_table_shard *shard = lock_shard(table, home);
	bool found = false;

	for (uint32_t at = home; at < home + KVW_TABLE_PROBES && !found; at++) {
		found = clear_node(&table->buckets[at], node, SPILLED, entry);
		if (found)
			(void)count_passed(table, home, at, -1);
		else if (passed(&table->buckets[at]) == 0)
			break;
	}
	if (found)
		count_out(shard, *entry);
	unlock_shard(shard);
	return found;
}

void kvw_table_remove(struct kvw_table *table, uint64_t hash, uint32_t home, uint32_t node)
{
	struct kvw_table_shard *shard = lock_shard(table, home);
	uint64_t entry = 0;
	bool found = clear_node(&table->buckets[home], node, 0, &entry);

	if (found)
		count_out(shard, entry);
	unlock_shard(shard);
	if (!found && remove_spilled(table, hash, node, &entry))
		count_spilled(table, home, kvw_entry_place(entry), -1);
}
