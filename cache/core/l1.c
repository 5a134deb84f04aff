/*
 * l1.c - chunks in CPU memory.
 *
 * The index finds keys and chooses what to evict; this file gives each entry room in the arena and
 * keeps, in the index's four words of place: the checksum (two words), the engine's names (a
 * pointer or 0), and the location of the bytes (one run packed into a word, or a pointer to
 * several). A chunk that fits into one free run, the ordinary case, costs no allocation.
 *
 * Room. The index evicts until enough units of the arena are free, and first checks whether all
 * evictable entries together would be enough: a chunk that cannot fit evicts none. The free units
 * may then lie in more runs than a chunk may have: further entries are evicted one by one until the
 * chunk has a place, as long as the free bytes are less than SCATTERED times the chunk's. A put
 * leaves the staging share free, a load does not, so that chunks held by leases and puts never keep
 * loads from lower tiers out.
 *
 * Events. A chunk with names is reported to the watch as stored when it is published and as removed
 * when its room is freed; this order is certain, since the filler holds the chunk until the first
 * report is made.
 *
 * Cost: a hold costs what the index's hold does; a reservation takes two short locks.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/blocks.h"
#include "core/l1.h"

#define MIN_MAX_CHUNKS   4096u
/* mean chunk size for which the number of entries is planned */
#define BYTES_PER_ENTRY  (256u * 1024)
#define GHOST_SHARE      256 /* remembered names of evicted chunks may take 1/256 of the capacity */
#define MAX_GHOST_BYTES  (64u << 20)
#define EXPIRE_AT_A_TIME 256
/* evict for contiguous room while less than this many times the chunk's size is free */
#define SCATTERED        4

enum { PLACE_SUM_LOW, PLACE_SUM_HIGH, PLACE_NAMES, PLACE_RUNS };

/* The engine's names of a chunk, kept as long as the chunk is in L1; the arrays follow the
 * struct. */
struct names {
	struct kvt_blocks blocks; /* without token ids */
	size_t bytes;             /* of the whole object */
	bool told;                /* the watch has been given the chunk's "stored" event */
};

/* The several runs of a chunk for which no single run was free. */
struct runs {
	uint32_t count;
	struct kvt_extent at[];
};

struct kvt_l1 {
	const struct kvt_surroundings *surroundings; /* borrowed */
	struct kvt_tier_watch watch;
	struct kvt_arena *arena;
	struct kvt_index *index;
	uint64_t staging_units; /* that puts leave free */
	uint64_t ttl_ns;
	uint32_t tokens_per_chunk;
	uint32_t scrub_cursor; /* used only by the thread that calls kvt_l1_tend */
	_Atomic uint64_t name_bytes, corrupt, stores, store_bytes;
};

/* --- where the bytes lie ---------------------------------------------------------------------- */

/* Packs one run into a word, whose lowest bit is set to distinguish it from a pointer. */
static uint64_t pack_run(struct kvt_extent run)
{
	return (uint64_t)run.first << 32 | (uint64_t)run.count << 1 | 1;
}

static uint32_t runs_of(
	const uint64_t place[4], struct kvt_extent *one, const struct kvt_extent **out)
{
	const struct runs *runs;

	if (place[PLACE_RUNS] & 1) {
		one->first = (uint32_t)(place[PLACE_RUNS] >> 32);
		one->count = (uint32_t)place[PLACE_RUNS] >> 1;
		*out = one;
		return 1;
	}
	runs = (const struct runs *)(uintptr_t)place[PLACE_RUNS];
	*out = runs != NULL ? runs->at : NULL;
	return runs != NULL ? runs->count : 0;
}

static enum kvt_status pack_runs(const struct kvt_extent *at, uint32_t count, uint64_t *word)
{
	struct runs *runs;

	if (count == 1 && at[0].count <= INT32_MAX) {
		*word = pack_run(at[0]);
		return KVT_OK;
	}
	runs = malloc(sizeof(*runs) + count * sizeof(runs->at[0]));
	if (runs == NULL)
		return KVT_ENOMEM;
	runs->count = count;
	memcpy(runs->at, at, count * sizeof(runs->at[0]));
	*word = (uint64_t)(uintptr_t)runs;
	return KVT_OK;
}

/* --- names ------------------------------------------------------------------------------------ */

static struct names *names_copy(const struct kvt_blocks *blocks)
{
	size_t bytes = sizeof(struct names) + kvt_blocks_bytes(blocks, false);
	struct names *names = malloc(bytes);

	if (names == NULL)
		return NULL;
	*names = (struct names){.bytes = bytes};
	kvt_blocks_pack(blocks, false, names + 1, &names->blocks);
	return names;
}

static struct names *names_of(const uint64_t place[4])
{
	return (struct names *)(uintptr_t)place[PLACE_NAMES];
}

/* --- life ------------------------------------------------------------------------------------- */

/* The index calls this, under its mutex, when it frees an entry. */
static void entry_gone(
	void *self, uint32_t entry, const struct kvt_key *key, const struct kvt_entry_info *info)
{
	struct kvt_l1 *l1 = self;
	struct names *names = names_of(info->place);
	const struct kvt_extent *at;
	struct kvt_extent one;
	uint32_t count = runs_of(info->place, &one, &at);

	(void)entry;
	if (names != NULL) {
		if (names->told && l1->watch.removed != NULL)
			l1->watch.removed(l1->watch.self, KVT_TIER_L1, key, &names->blocks);
		atomic_fetch_sub_explicit(&l1->name_bytes, names->bytes, memory_order_relaxed);
		free(names);
	}
	if (count != 0)
		kvt_arena_give(l1->arena, at, count);
	if (count != 0 && !(info->place[PLACE_RUNS] & 1))
		free((void *)(uintptr_t)info->place[PLACE_RUNS]);
}

static uint32_t entries_for(const struct kvt_config *config, uint64_t capacity)
{
	uint64_t units = capacity / KVT_ARENA_UNIT;
	uint64_t most = capacity / BYTES_PER_ENTRY;

	if (config->l1_max_chunks != 0)
		return config->l1_max_chunks;
	if (most < MIN_MAX_CHUNKS)
		most = units < MIN_MAX_CHUNKS ? units : MIN_MAX_CHUNKS;
	return most < UINT32_MAX / 4 ? (uint32_t)most : UINT32_MAX / 4;
}

static enum kvt_status make_arena(struct kvt_l1 *l1, const struct kvt_config *config)
{
	struct kvt_arena_options options = {
		.bytes = config->l1_capacity,
		.backing = config->l1_backing,
		.lock = config->l1_lock != 0,
		.numa_node = config->l1_numa_node,
	};

	return kvt_arena_create(&options, l1->surroundings, &l1->arena);
}

static enum kvt_status make_index(struct kvt_l1 *l1, const struct kvt_config *config)
{
	uint64_t capacity = kvt_arena_capacity(l1->arena);
	uint64_t ghosts = capacity / GHOST_SHARE;
	struct kvt_index_options options = {
		.max_entries = entries_for(config, capacity),
		.capacity = capacity,
		.tenant_limit = config->tenant_l1_bytes,
		.policy = config->l1_policy,
		.max_ghost_bytes = ghosts < MAX_GHOST_BYTES ? ghosts : MAX_GHOST_BYTES,
		.gone = entry_gone,
		.self = l1,
	};

	l1->staging_units =
		(uint64_t)((double)(capacity / KVT_ARENA_UNIT) * config->l1_staging_share);
	return kvt_index_create(&options, l1->surroundings, &l1->index);
}

enum kvt_status kvt_l1_create(const struct kvt_config *config, const struct kvt_surroundings *s,
	const struct kvt_tier_watch *watch, char *why, struct kvt_l1 **out)
{
	struct kvt_l1 *l1 = calloc(1, sizeof(*l1));
	enum kvt_status status;

	if (l1 == NULL) {
		snprintf(why, KVT_REASON_BYTES, "out of memory");
		return KVT_ENOMEM;
	}
	l1->surroundings = s;
	l1->watch = *watch;
	l1->ttl_ns = config->ttl_ns;
	l1->tokens_per_chunk = config->tokens_per_chunk;
	status = make_arena(l1, config);
	if (status != KVT_OK) {
		snprintf(why, KVT_REASON_BYTES, "no arena of %llu bytes, backing %s: %s",
			(unsigned long long)config->l1_capacity, config->l1_backing,
			kvt_status_text(status));
		goto out;
	}
	status = make_index(l1, config);
	if (status != KVT_OK) {
		snprintf(why, KVT_REASON_BYTES, "no index, policy %s: %s", config->l1_policy,
			kvt_status_text(status));
		goto out;
	}
	*out = l1;
	l1 = NULL;
out:
	kvt_l1_destroy(l1);
	return status;
}

void kvt_l1_destroy(struct kvt_l1 *l1)
{
	if (l1 == NULL)
		return;
	if (l1->index != NULL)
		kvt_index_destroy(l1->index);
	kvt_arena_destroy(l1->arena);
	free(l1);
}

struct kvt_arena *kvt_l1_arena(struct kvt_l1 *l1)
{
	return l1->arena;
}

/* --- finding and holding ---------------------------------------------------------------------- */

size_t kvt_l1_match(struct kvt_l1 *l1, const struct kvt_key *keys, size_t n)
{
	return kvt_index_match(l1->index, keys, n);
}

size_t kvt_l1_hold(struct kvt_l1 *l1, const struct kvt_key *keys, size_t n, uint32_t *entries)
{
	return kvt_index_hold_chain(l1->index, keys, n, true, entries);
}

enum kvt_status kvt_l1_hold_one(
	struct kvt_l1 *l1, const struct kvt_key *key, bool use, uint32_t *entry)
{
	return kvt_index_hold(l1->index, key, use, entry);
}

void kvt_l1_release(struct kvt_l1 *l1, uint32_t entry)
{
	kvt_index_release(l1->index, entry);
}

bool kvt_l1_is_filling(struct kvt_l1 *l1, const struct kvt_key *key)
{
	return kvt_index_is_filling(l1->index, key);
}

bool kvt_l1_is_live(struct kvt_l1 *l1, uint32_t entry)
{
	return kvt_index_is_live(l1->index, entry);
}

size_t kvt_l1_pass(struct kvt_l1 *l1, const uint32_t *entries, size_t n)
{
	return kvt_index_pass(l1->index, entries, n);
}

uint32_t kvt_l1_segments(struct kvt_l1 *l1, uint32_t entry, struct kvt_segment *out)
{
	struct kvt_entry_info info;
	const struct kvt_extent *at;
	struct kvt_extent one;
	uint32_t count;

	kvt_index_info(l1->index, entry, &info);
	count = runs_of(info.place, &one, &at);
	kvt_arena_segments(l1->arena, at, count, info.bytes, out);
	return count;
}

const struct kvt_key *kvt_l1_key(struct kvt_l1 *l1, uint32_t entry)
{
	return kvt_index_key(l1->index, entry);
}

uint64_t kvt_l1_bytes(struct kvt_l1 *l1, uint32_t entry)
{
	struct kvt_entry_info info;

	kvt_index_info(l1->index, entry, &info);
	return info.bytes;
}

struct kvt_checksum kvt_l1_checksum(struct kvt_l1 *l1, uint32_t entry)
{
	struct kvt_entry_info info;

	kvt_index_info(l1->index, entry, &info);
	return (struct kvt_checksum){info.place[PLACE_SUM_LOW], info.place[PLACE_SUM_HIGH]};
}

bool kvt_l1_intact(struct kvt_l1 *l1, uint32_t entry)
{
	struct kvt_segment segments[KVT_MAX_EXTENTS];
	uint32_t count = kvt_l1_segments(l1, entry, segments);
	struct kvt_checksum given = kvt_l1_checksum(l1, entry), found;

	kvt_checksum_segments(segments, count, kvt_l1_bytes(l1, entry), &found);
	return kvt_checksum_equal(&given, &found);
}

/* --- filling ---------------------------------------------------------------------------------- */

static void describe(struct kvt_l1 *l1, const struct kvt_item *item, struct kvt_entry_info *info)
{
	uint64_t unit = KVT_ARENA_UNIT;
	int64_t wall = kvt_steady_wall(l1->surroundings);

	*info = (struct kvt_entry_info){
		.bytes = item->bytes,
		.charge = (item->bytes + unit - 1) / unit * unit,
		.tenant = item->tenant,
		.ttl_ns = item->ttl_ns != 0 ? item->ttl_ns : l1->ttl_ns,
		.tokens = item->tokens != 0 ? item->tokens : l1->tokens_per_chunk,
	};
	info->expires_wall_ns = info->ttl_ns == 0 || info->ttl_ns >= (uint64_t)(INT64_MAX - wall)
					? INT64_MAX
					: wall + (int64_t)info->ttl_ns;
	/* with this cost, eviction depends only on an entry's size */
	info->cost_ns = (uint64_t)info->tokens * 1000;
}

bool kvt_l1_pass_for(
	struct kvt_l1 *l1, const struct kvt_key *keys, size_t n, const struct kvt_item *item)
{
	struct kvt_entry_info info;

	describe(l1, item, &info);
	return kvt_index_pass_for(l1->index, keys, n, &info, l1->staging_units * KVT_ARENA_UNIT);
}

/* Returns whether free bytes are so few that free space in too many runs is a reason to evict. */
static bool is_scarce(struct kvt_l1 *l1, uint64_t bytes, uint64_t keep)
{
	uint64_t unused = kvt_arena_capacity(l1->arena) - kvt_arena_used(l1->arena);

	return unused / SCATTERED < bytes + keep * KVT_ARENA_UNIT;
}

/* Takes units of the arena for a chunk, whose bytes the index has already charged. */
static enum kvt_status find_room(struct kvt_l1 *l1, uint64_t bytes, uint64_t keep, uint64_t *word)
{
	struct kvt_extent at[KVT_MAX_EXTENTS];
	enum kvt_status status;
	uint32_t count;

	do {
		count = KVT_MAX_EXTENTS;
		status = kvt_arena_take(l1->arena, bytes, keep, at, &count);
	} while (status == KVT_FULL && is_scarce(l1, bytes, keep) && kvt_index_evict(l1->index));
	if (status != KVT_OK)
		return status;
	status = pack_runs(at, count, word);
	if (status != KVT_OK)
		kvt_arena_give(l1->arena, at, count);
	return status;
}

enum kvt_status kvt_l1_reserve(
	struct kvt_l1 *l1, const struct kvt_item *item, enum kvt_l1_use use, uint32_t *entry)
{
	uint64_t keep = use == KVT_L1_LOAD ? 0 : l1->staging_units;
	uint64_t place[4] = {0};
	struct kvt_entry_info info;
	enum kvt_status status;
	uint32_t found;

	if (item->bytes > kvt_arena_capacity(l1->arena) - keep * KVT_ARENA_UNIT)
		return KVT_FULL;
	describe(l1, item, &info);
	status = kvt_index_insert_sparing(l1->index, &item->key, item->parent, &info,
		keep * KVT_ARENA_UNIT, use == KVT_L1_CHILD, &found);
	if (status != KVT_OK)
		return status;
	status = find_room(l1, item->bytes, keep, &place[PLACE_RUNS]);
	if (status != KVT_OK) {
		kvt_index_discard(l1->index, found);
		return status;
	}
	kvt_index_place(l1->index, found, place);
	*entry = found;
	return KVT_OK;
}

enum kvt_status kvt_l1_publish(struct kvt_l1 *l1, uint32_t entry, const struct kvt_checksum *sum,
	const struct kvt_blocks *blocks)
{
	struct names *names = blocks != NULL ? names_copy(blocks) : NULL;
	struct kvt_entry_info info;
	enum kvt_status status;

	kvt_index_info(l1->index, entry, &info);
	info.place[PLACE_SUM_LOW] = sum->low;
	info.place[PLACE_SUM_HIGH] = sum->high;
	info.place[PLACE_NAMES] = (uint64_t)(uintptr_t)names;
	if (names != NULL)
		atomic_fetch_add_explicit(&l1->name_bytes, names->bytes, memory_order_relaxed);
	kvt_index_place(l1->index, entry, info.place);
	status = kvt_index_publish(l1->index, entry);
	if (status != KVT_OK)
		return status;
	atomic_fetch_add_explicit(&l1->stores, 1, memory_order_relaxed);
	atomic_fetch_add_explicit(&l1->store_bytes, info.bytes, memory_order_relaxed);
	if (names != NULL && l1->watch.stored != NULL) {
		l1->watch.stored(
			l1->watch.self, KVT_TIER_L1, kvt_index_key(l1->index, entry), blocks);
		names->told = true; /* read only after the filler has released its hold */
	}
	return KVT_OK;
}

void kvt_l1_discard(struct kvt_l1 *l1, uint32_t entry)
{
	kvt_index_discard(l1->index, entry);
}

/* --- leaving ---------------------------------------------------------------------------------- */

size_t kvt_l1_erase(struct kvt_l1 *l1, const struct kvt_key *keys, size_t n)
{
	return kvt_index_erase(l1->index, keys, n);
}

size_t kvt_l1_erase_tenant(struct kvt_l1 *l1, const struct kvt_tenant *tenant)
{
	return kvt_index_erase_tenant(l1->index, tenant);
}

size_t kvt_l1_erase_slots(struct kvt_l1 *l1, const struct kvt_slot_set *slots)
{
	return kvt_index_erase_slots(l1->index, slots);
}

size_t kvt_l1_erase_all(struct kvt_l1 *l1)
{
	return kvt_index_erase_all(l1->index);
}

void kvt_l1_tally(
	struct kvt_l1 *l1, const struct kvt_tenant *tenant, uint64_t *chunks, uint64_t *bytes)
{
	kvt_index_tally(l1->index, tenant, chunks, bytes);
}

void kvt_l1_tenants(struct kvt_l1 *l1, size_t most, struct kvt_tenant_list *out)
{
	kvt_index_tenants(l1->index, most, out);
}

enum kvt_status kvt_l1_known(
	struct kvt_l1 *l1, const struct kvt_key *key, struct kvt_entry_info *out)
{
	enum kvt_status status;
	uint32_t entry;

	status = kvt_index_hold(l1->index, key, false, &entry);
	if (status != KVT_OK)
		return status;
	kvt_index_info(l1->index, entry, out);
	kvt_index_release(l1->index, entry);
	return KVT_OK;
}

size_t kvt_l1_clear(struct kvt_l1 *l1, uint64_t *tokens)
{
	return kvt_index_clear(l1->index, tokens);
}

void kvt_l1_drop(struct kvt_l1 *l1, uint32_t entry)
{
	atomic_fetch_add_explicit(&l1->corrupt, 1, memory_order_relaxed);
	kvt_note(l1->surroundings, KVT_LOG_ERROR, "l1: a chunk changed in memory and was dropped");
	kvt_index_drop(l1->index, entry);
}

enum kvt_status kvt_l1_limit_tenant(
	struct kvt_l1 *l1, const struct kvt_tenant *tenant, uint64_t bytes)
{
	return kvt_index_limit_tenant(l1->index, tenant, bytes);
}

bool kvt_l1_is_limited(struct kvt_l1 *l1, const struct kvt_item *item)
{
	struct kvt_entry_info info;

	describe(l1, item, &info);
	return kvt_index_is_limited(l1->index, &info);
}

void kvt_l1_count_limited(struct kvt_l1 *l1, const struct kvt_item *item)
{
	struct kvt_entry_info info;

	describe(l1, item, &info);
	(void)kvt_index_count_limited(l1->index, &info);
}

size_t kvt_l1_pin(struct kvt_l1 *l1, const struct kvt_key *keys, size_t n, bool pin)
{
	return kvt_index_pin(l1->index, keys, n, pin);
}

/* Checks chunks in turn; at the end of a round the next call starts over. */
static size_t scrub(struct kvt_l1 *l1, uint64_t bytes, uint64_t *checked)
{
	uint64_t done = 0;
	size_t count = 0;
	uint32_t entry;

	while (done < bytes && kvt_index_next(l1->index, &l1->scrub_cursor, &entry)) {
		done += kvt_l1_bytes(l1, entry);
		count++;
		if (!kvt_l1_intact(l1, entry))
			kvt_l1_drop(l1, entry);
		kvt_l1_release(l1, entry);
		if (l1->scrub_cursor == 0)
			break;
	}
	*checked = done;
	return count;
}

size_t kvt_l1_tend(struct kvt_l1 *l1, uint64_t bytes, uint64_t *checked)
{
	size_t count = kvt_index_expire(l1->index, EXPIRE_AT_A_TIME);
	uint64_t done = 0;

	if (bytes != 0)
		count += scrub(l1, bytes, &done);
	if (checked != NULL)
		*checked = done;
	return count;
}

void kvt_l1_limited(struct kvt_l1 *l1, uint64_t *evictions, uint64_t *refusals)
{
	struct kvt_index_stats s;

	kvt_index_stats(l1->index, &s);
	*evictions = s.limited;
	*refusals = s.refused;
}

void kvt_l1_stats(struct kvt_l1 *l1, struct kvt_tier_stats *out)
{
	struct kvt_index_stats s;

	kvt_index_stats(l1->index, &s);
	out->state = KVT_TIER_WORKS;
	snprintf(out->mode, sizeof(out->mode), "%s", kvt_arena_mode(l1->arena));
	snprintf(out->reason, sizeof(out->reason), "%s", kvt_arena_reason(l1->arena));
	out->capacity = kvt_arena_capacity(l1->arena);
	out->used = kvt_arena_used(l1->arena);
	out->payload = s.payload;
	out->chunks = s.entries;
	out->metadata_bytes = s.metadata_bytes + kvt_arena_bookkeeping(l1->arena) + sizeof(*l1);
	out->ghost_bytes = s.ghost_bytes;
	out->name_bytes = atomic_load_explicit(&l1->name_bytes, memory_order_relaxed);
	out->stores = atomic_load_explicit(&l1->stores, memory_order_relaxed);
	out->store_bytes = atomic_load_explicit(&l1->store_bytes, memory_order_relaxed);
	out->evictions = s.evictions;
	out->expired = s.expired;
	out->erased = s.erased;
	out->corrupt = atomic_load_explicit(&l1->corrupt, memory_order_relaxed);
	out->leased = s.held;
	out->pinned = s.pinned;
}
