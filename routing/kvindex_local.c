/*
 * kvindex_local.c - entries of engine hashes, their order by age and the sweep that reclaims stale
 * entries; kvindex_local.h describes the scheme.
 *
 * One thread writes. The counters are atomic because statistics read them from other threads.
 */
#include "routing/kvindex_local.h"

#include <assert.h>

#define SWEEP_PER_STORE 4  /* entries swept per stored block */
#define SWEEP_FOR_ROOM  64 /* entries swept before the oldest entry is dropped to make room */

/* A round of the sweep must end within so many increments of generations, which wrap at 2^16. */
#define STEPS_PER_ROUND 32768

_Static_assert(KVW_KVCELLS == 1 << 16, "a cell is the lower half of a word");

uint64_t kvw_kvlocal_bytes(uint64_t count)
{
	return KVW_KVCELLS * (sizeof(uint16_t) + sizeof(uint32_t)) +
	       KVW_MAX_WORKERS * sizeof(uint16_t) + KVW_KVTABLE_MORE_BYTES +
	       sizeof(struct kvw_kventry) +
	       count * (KVW_KVTABLE_SLOT_BYTES + sizeof(struct kvw_kventry) + sizeof(uint32_t));
}

void kvw_kvlocal_init(struct kvw_kvlocal *local, void *memory, uint32_t count, uint64_t seed)
{
	char *at = memory;

	*local = (struct kvw_kvlocal){
		.count = count,
		.fresh = 1,
		.hand = 1,
		.seed = seed,
	};
	local->generations = memory;
	at += KVW_KVCELLS * sizeof(uint16_t);
	local->required = (_Atomic uint16_t *)(void *)at;
	at += KVW_MAX_WORKERS * sizeof(uint16_t);
	local->live = (_Atomic uint32_t *)(void *)at;
	at += KVW_KVCELLS * sizeof(uint32_t);
	kvw_kvtable_init(&local->table, at, count, seed);
	at += KVW_KVTABLE_MORE_BYTES + count * KVW_KVTABLE_SLOT_BYTES;
	local->entries = (struct kvw_kventry *)(void *)at;
	local->chains = (uint32_t *)(void *)(local->entries + count + 1);
	for (uint32_t i = 0; i < KVW_KVCELLS; i++)
		atomic_init(&local->generations[i], 1);
}

static void live_by(struct kvw_kvlocal *local, uint32_t cell, int by)
{
	atomic_store_explicit(
		&local->live[cell], kvw_kvlive(local, cell) + (uint32_t)by, memory_order_relaxed);
}

static void count_by(_Atomic uint64_t *counter, uint64_t by)
{
	uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);

	atomic_store_explicit(counter, value + by, memory_order_relaxed);
}

static uint32_t *chain_of(const struct kvw_kvlocal *local, uint32_t lane, uint64_t hash)
{
	uint64_t spread = kvw_kvspread(hash + ((uint64_t)lane << 48), local->seed);

	return &local->chains[(spread >> 32) * local->count >> 32];
}

static uint32_t lane_of(const struct kvw_kventry *entry)
{
	return kvw_kvword_cell(entry->word) / KVW_TIER_COUNT;
}

/* --- order by age --- */

static void list_remove(struct kvw_kvlocal *local, uint32_t at)
{
	struct kvw_kventry *entry = &local->entries[at];

	if (entry->older != 0)
		local->entries[entry->older].newer = entry->newer;
	else
		local->oldest = entry->newer;
	if (entry->newer != 0)
		local->entries[entry->newer].older = entry->older;
	else
		local->newest = entry->older;
}

static void list_append(struct kvw_kvlocal *local, uint32_t at)
{
	struct kvw_kventry *entry = &local->entries[at];

	entry->newer = 0;
	entry->older = local->newest;
	if (local->newest != 0)
		local->entries[local->newest].newer = at;
	else
		local->oldest = at;
	local->newest = at;
}

/* --- entries --- */

/* Frees an entry and drops its holder word. */
static void release_entry(struct kvw_kvlocal *local, uint32_t at)
{
	struct kvw_kventry *entry = &local->entries[at];
	uint32_t *link = chain_of(local, lane_of(entry), entry->hash);

	while (*link != at)
		link = &local->entries[*link].next;
	*link = entry->next;
	list_remove(local, at);
	kvw_kvtable_drop(&local->table, entry->key, entry->word);
	if (kvw_kvword_alive(local, entry->word))
		live_by(local, kvw_kvword_cell(entry->word), -1);
	else
		count_by(&local->stale, (uint64_t)-1);
	entry->word = 0;
	entry->next = local->free_entries;
	local->free_entries = at;
	count_by(&local->used, (uint64_t)-1);
}

/* Makes room for one entry if there is none. */
static void make_room(struct kvw_kvlocal *local)
{
	if (local->free_entries != 0 || local->fresh <= local->count)
		return;
	kvw_kvlocal_sweep(local, SWEEP_FOR_ROOM);
	if (local->free_entries != 0)
		return;
	if (kvw_kvword_alive(local, local->entries[local->oldest].word))
		count_by(&local->dropped, 1);
	release_entry(local, local->oldest);
}

/* Finds the entry of a hash in a cell, dead or alive; 0: there is none. */
static uint32_t find_entry(const struct kvw_kvlocal *local, uint32_t cell, uint64_t hash)
{
	uint32_t at = *chain_of(local, cell / KVW_TIER_COUNT, hash);

	while (at != 0 && (local->entries[at].hash != hash ||
				  kvw_kvword_cell(local->entries[at].word) != cell))
		at = local->entries[at].next;
	return at;
}

static void enter(
	struct kvw_kvlocal *local, uint32_t cell, uint32_t space, uint64_t hash, uint64_t key)
{
	uint32_t *chain = chain_of(local, cell / KVW_TIER_COUNT, hash);
	struct kvw_kventry *entry = NULL;
	uint32_t at = 0;

	make_room(local);
	at = local->free_entries;
	if (at != 0)
		local->free_entries = local->entries[at].next;
	else
		at = local->fresh++;
	entry = &local->entries[at];
	*entry = (struct kvw_kventry){
		.hash = hash,
		.key = key,
		.word = kvw_kvword(local, cell),
		.space = space,
		.count = 1,
		.next = *chain,
	};
	*chain = at;
	list_append(local, at);
	kvw_kvtable_add(&local->table, key, entry->word);
	live_by(local, cell, 1);
	count_by(&local->used, 1);
}

void kvw_kvlocal_stored(struct kvw_kvlocal *local, uint32_t lane, uint32_t tier, uint32_t space,
	uint64_t hash, uint64_t key)
{
	uint32_t cell = kvw_kvcell(lane, tier);
	uint64_t mixed = kvw_kvkey(space, key);
	uint32_t at = find_entry(local, cell, hash);
	struct kvw_kventry *entry = &local->entries[at];

	kvw_kvlocal_sweep(local, SWEEP_PER_STORE);
	if (at != 0 && entry->word == kvw_kvword(local, cell) && entry->key == mixed) {
		entry->count += entry->count < UINT32_MAX;
		list_remove(local, at);
		list_append(local, at);
		return;
	}
	/* The entry is stale, or the hash has another key now: releases it, unless the sweep has
	 * done so already. */
	if (at != 0 && entry->word != 0 && entry->hash == hash)
		release_entry(local, at);
	enter(local, cell, space, hash, mixed);
}

bool kvw_kvlocal_removed(struct kvw_kvlocal *local, uint32_t lane, uint32_t tier, uint64_t hash)
{
	uint32_t cell = kvw_kvcell(lane, tier);
	uint32_t at = find_entry(local, cell, hash);

	if (at == 0 || local->entries[at].word != kvw_kvword(local, cell))
		return false;
	if (--local->entries[at].count == 0)
		release_entry(local, at);
	return true;
}

bool kvw_kvlocal_key(const struct kvw_kvlocal *local, uint32_t lane, uint64_t hash, uint64_t *key)
{
	uint32_t at = *chain_of(local, lane, hash);

	for (; at != 0; at = local->entries[at].next) {
		const struct kvw_kventry *entry = &local->entries[at];

		if (entry->hash == hash && lane_of(entry) == lane &&
			kvw_kvword_alive(local, entry->word)) {
			*key = kvw_kvkey(entry->space, entry->key);
			return true;
		}
	}
	return false;
}

void kvw_kvlocal_require(
	struct kvw_kvlocal *local, uint32_t worker, uint32_t among, uint32_t sources)
{
	_Atomic uint16_t *required = &local->required[worker];
	uint32_t others = atomic_load_explicit(required, memory_order_relaxed) & ~among;

	sources &= among;
	atomic_store_explicit(required, (uint16_t)(others | sources), memory_order_relaxed);
	if (sources != 0)
		atomic_store_explicit(&local->requires, true, memory_order_relaxed);
}

/* --- forgetting --- */

static void forget_cell(struct kvw_kvlocal *local, uint32_t cell)
{
	uint16_t generation = (uint16_t)(kvw_kvgeneration(local, cell) + 1);

	/* Skips generation 0, since it could make a word of 0, which means free. */
	atomic_store_explicit(
		&local->generations[cell], generation == 0 ? 1 : generation, memory_order_relaxed);
	count_by(&local->stale, kvw_kvlive(local, cell));
	atomic_store_explicit(&local->live[cell], 0, memory_order_relaxed);
}

void kvw_kvlocal_forget(struct kvw_kvlocal *local, uint32_t lane, uint32_t lanes, uint32_t tier)
{
	uint32_t first = tier == KVW_KVINDEX_ANY ? 0 : tier;
	uint32_t end = tier == KVW_KVINDEX_ANY ? KVW_TIER_COUNT : tier + 1;

	for (uint32_t i = lane; i < lane + lanes; i++)
		for (uint32_t t = first; t < end; t++)
			forget_cell(local, kvw_kvcell(i, t));
	if (++local->steps_of_generations >= STEPS_PER_ROUND) {
		local->steps_of_generations = 0;
		kvw_kvlocal_sweep(local, local->count);
	}
}

void kvw_kvlocal_sweep(struct kvw_kvlocal *local, uint32_t steps)
{
	for (; steps > 0 && atomic_load_explicit(&local->stale, memory_order_relaxed) > 0;
		steps--) {
		const struct kvw_kventry *entry = &local->entries[local->hand];

		if (entry->word != 0 && !kvw_kvword_alive(local, entry->word))
			release_entry(local, local->hand);
		local->hand = local->hand + 1 < local->fresh ? local->hand + 1 : 1;
	}
}
