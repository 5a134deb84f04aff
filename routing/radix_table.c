/*
 * radix_table.c - looks up and changes groups, buckets and spilled entries; radix_table.h describes
 * the layout.
 */
#include "routing/radix_table.h"

#include "routing/spin.h"

#define TAG_MASK   UINT64_C(0xFFFFFE00) /* those bits of an entry that are bits of its own hash */
#define SPILLED    UINT64_C(0x100)      /* the entry was placed by its own hash */
#define PLACE_BIT  5
#define GROUP_MASK ((uint32_t)KVW_TABLE_GROUP - 1)
#define MOST       255 /* largest count */
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

/* Bit in match_group's result: some counts of the bucket are not 0. */
#define CROWDED (1u << KVW_BUCKET_ENTRIES)

/* Returns how many entries passed a full bucket. */
static inline uint32_t passed(const struct kvw_bucket *bucket)
{
	return (uint32_t)load_counts(bucket) & MOST;
}

/* Records the node that begins at chunk `at` of a window, in the order of chunks. */
static inline void note_entry(struct kvw_table_found *found, uint32_t at, uint64_t entry)
{
	uint32_t place = found->count;

	while (place > 0 && found->at[place - 1] > at)
		place--;
	if (place > 0 && found->at[place - 1] == at)
		return; /* entered twice: either entry is right */
	for (uint32_t i = found->count++; i > place; i--) {
		found->at[i] = found->at[i - 1];
		found->entries[i] = found->entries[i - 1];
	}
	found->at[place] = at;
	found->entries[place] = entry;
}

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

/* Adds `by` to byte `which` of a bucket's counts. The lock is held, so that no other thread
 * writes. */
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
	for (uint32_t i = 0; i < groups; i++) {
		asked->homes[i] = kvw_table_group_home(table, chunks, first + i * KVW_TABLE_GROUP);
		kvw_table_prefetch(table, asked->homes[i]);
	}
	/* Short prompts with a common beginning crowd one group, so that their spill buckets are
	 * prefetched at once. */
	for (uint32_t i = 1; i < asked->count && asked->count <= KVW_TABLE_GROUP; i++) {
		uint64_t spread = kvw_table_spread(table, chunks[first + i].hash);

		kvw_table_prefetch(table, kvw_table_home(table, spread));
	}
}

static inline unsigned match_group(const struct kvw_table *table, const struct kvw_bucket *bucket,
	const struct kvw_chunk *group, uint32_t count)
{
	unsigned match = 0;

	/* Without branches, since which entry matches is unpredictable. */
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

/* Returns the entry of a chunk that was placed by its own hash; 0: there is none. */
static uint64_t find_spilled(const struct kvw_table *table, uint64_t spread, uint32_t place)
{
	uint64_t wanted = (spread & TAG_MASK) | place << PLACE_BIT;
	const struct kvw_bucket *bucket = &table->buckets[kvw_table_home(table, spread)];

	for (unsigned probes = 0; probes < KVW_TABLE_PROBES; probes++, bucket++) {
		unsigned match = match_own(bucket, wanted);

		if (match != 0)
			return load_entry(bucket, (unsigned)__builtin_ctz(match));
		if (passed(bucket) == 0)
			break;
	}
	return 0;
}

/* Returns the places of a group, as bits, at which spilled nodes may begin. */
static inline uint64_t spilled_places(const struct kvw_bucket *bucket, uint32_t count)
{
	uint64_t counts = load_counts(bucket);

	/* Collects the top bit of each byte that is not 0, and joins these eight bits. */
	counts = (((counts & EACH(0x7F)) + EACH(0x7F)) | counts) & EACH(0x80);
	return (counts >> 7) * UINT64_C(0x0102040810204080) >> 56 & ((1u << count) - 1);
}

/* Looks up those chunks of the window that may begin a node that was placed by its own hash. */
static void look_for_spilled(const struct kvw_table *table, const struct kvw_chunk *chunks,
	uint64_t places, struct kvw_table_found *found, uint32_t first)
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
			table, kvw_table_spread(table, chunks[at].hash), at & GROUP_MASK);

		if (entry != 0)
			note_entry(found, at, entry);
	}
}

/* Returns how many chunks of the window the group has that begins at chunk i. */
static inline uint32_t group_count(const struct kvw_table_asked *asked, uint32_t i)
{
	return asked->count - i < KVW_TABLE_GROUP ? asked->count - i : KVW_TABLE_GROUP;
}

/* Returns the chunks of a window before `end`, as bits. */
static inline uint64_t before(uint32_t end, const struct kvw_table_asked *asked)
{
	uint32_t count = end > asked->first ? end - asked->first : 0;

	return count < KVW_TABLE_WINDOW ? (UINT64_C(1) << count) - 1 : UINT64_MAX;
}

/* All groups are compared before any result is used, since matches are unpredictable, and all lines
 * have been prefetched. */
void kvw_table_look(const struct kvw_table *table, const struct kvw_chunk *chunks,
	const struct kvw_table_asked *asked, struct kvw_table_found *found)
{
	uint64_t groups = 0;  /* a byte for each group */
	uint64_t spilled = 0; /* a bit for each chunk */
	uint32_t end = asked->end;

	for (uint32_t i = 0; i < asked->count; i += KVW_TABLE_GROUP)
		groups |= (uint64_t)match_group(table,
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
			break; /* no run reaches this group */
		if (at >= asked->first + asked->count || entry == 0)
			continue; /* changed meanwhile */
		note_entry(found, at, entry);
		if (at + kvw_entry_length(entry) >= end)
			end = at + kvw_entry_length(entry) + 1;
	}
	if ((spilled & before(end, asked)) != 0)
		look_for_spilled(table, chunks, spilled, found, asked->first);
}

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

/* Returns the index of an empty entry, or -1. Sets *twin if there is an entry with the same tag and
 * place. The lock is held. */
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

/* Adds `by` to the passed counts of all buckets from `home` up to `end`, if all have room. The lock
 * is held. */
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

/* Adds `by` to the number of spilled entries of a place of a group. Those of place 0 are counted as
 * passed. */
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

/* Places an entry in its group's bucket, or by its own hash if that bucket is full. */
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
	return enter(table, kvw_table_spread(table, chunks[at].hash), *home, at & GROUP_MASK, node,
		length);
}

enum kvw_err kvw_table_enter(struct kvw_table *table, uint64_t hash, uint32_t group, uint32_t place,
	uint32_t node, uint32_t length)
{
	return enter(table, kvw_table_spread(table, hash),
		kvw_table_home(table, (uint64_t)group << 32), place & GROUP_MASK, node, length);
}

/* Clears the entry of exactly this node, spilled or not as given, if this bucket has it. *entry:
 * its value. The lock is held. */
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
