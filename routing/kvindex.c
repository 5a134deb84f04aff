/*
 * kvindex.c - the index as a whole: its memory and the writers' entry points.
 *
 *     events --> entries (worker, source, tier, engine hash -> key) --> table (key -> holders)
 *                kvindex_local.h, the writer's own                      kvindex_table.h
 *            \-> parked records, until their parent is stored            ^
 *                kvindex_park.h                                  readers |
 *
 * All memory but parked records is one mapping, sized for as many entries as fit the limit in
 * bytes. When it is full, the entries stored longest ago are dropped.
 *
 * Never a wrong hit: a word is in the table exactly as long as its entry exists, an entry exists
 * only by stores that were not removed, and in one generation of its cell. Every failure (no room,
 * a torn read, a lost parked record) omits words and adds none.
 */
#include "routing/kvindex.h"

#include <assert.h>
#include <stdlib.h>
#include <sys/mman.h>

#include "routing/kvindex_local.h"
#include "routing/kvindex_park.h"

#define MAX_ENTRIES    (UINT32_MAX / 2)
#define SWEEP_PER_TICK 4096

struct kvw_kvindex {
	struct kvw_kvlocal local;
	struct kvw_kvpark park;
	void *mapping;
	uint64_t mapped_bytes;
	kvw_kvindex_keys_fn *keys;
	void *keys_ctx;
	_Atomic uint64_t unknown_removes, purges, clears;
};

/* --- life --- */

enum kvw_err kvw_kvindex_create(const struct kvw_kvindex_options *options, struct kvw_kvindex **out)
{
	uint64_t bytes =
		options->bytes < KVW_KVINDEX_MIN_BYTES ? KVW_KVINDEX_MIN_BYTES : options->bytes;
	uint64_t each = kvw_kvlocal_bytes(1) - kvw_kvlocal_bytes(0);
	uint64_t count = (bytes - kvw_kvlocal_bytes(0)) / each;
	struct kvw_kvindex *index = calloc(1, sizeof(*index));
	enum kvw_err err = KVW_ENOMEM;

	if (index == NULL)
		return KVW_ENOMEM;
	if (count > MAX_ENTRIES)
		count = MAX_ENTRIES;
	index->mapped_bytes = kvw_kvlocal_bytes(count);
	index->mapping = mmap(NULL, index->mapped_bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (index->mapping == MAP_FAILED)
		goto out;
	/* Accesses are random, so that without large pages every look-up would also miss the
	 * TLB. */
	(void)madvise(index->mapping, index->mapped_bytes, MADV_HUGEPAGE);
	err = kvw_kvpark_init(&index->park, options->park_bytes, options->park_ns, options->seed);
	if (err != KVW_OK)
		goto out;
	kvw_kvlocal_init(&index->local, index->mapping, (uint32_t)count, options->seed);
	index->keys = options->keys;
	index->keys_ctx = options->keys_ctx;
	*out = index;
	return KVW_OK;
out:
	if (index->mapping != MAP_FAILED)
		munmap(index->mapping, index->mapped_bytes);
	free(index);
	return err;
}

void kvw_kvindex_destroy(struct kvw_kvindex *index)
{
	if (index == NULL)
		return;
	kvw_kvpark_finish(&index->park);
	munmap(index->mapping, index->mapped_bytes);
	free(index);
}

/* --- writers --- */

static void count_one(_Atomic uint64_t *counter)
{
	uint64_t value = atomic_load_explicit(counter, memory_order_relaxed);

	atomic_store_explicit(counter, value + 1, memory_order_relaxed);
}

/* Stores one block and releases the parked records that wait for it. */
static void store_one(struct kvw_kvindex *index, uint32_t lane,
	const struct kvw_kvindex_blocks *blocks, uint64_t hash, uint64_t key)
{
	kvw_kvlocal_stored(&index->local, lane, blocks->tier, blocks->space, hash, key);
	kvw_kvpark_wake(&index->park, lane, hash);
}

/* Computes the keys of a record whose parent is known now, and stores those of its blocks that were
 * not removed since. */
static void resume_one(struct kvw_kvindex *index, struct kvw_kvrecord *record)
{
	struct kvw_kvindex_parked parked;
	struct kvw_kvindex_blocks blocks;

	kvw_kvrecord_show(record, &parked);
	blocks = (struct kvw_kvindex_blocks){.space = parked.space, .tier = parked.tier};
	if (kvw_kvword_alive(&index->local, record->word) &&
		kvw_kvlocal_key(&index->local, record->lane, record->parent, &parked.parent_key) &&
		index->keys != NULL && index->keys(index->keys_ctx, &parked, record->keys)) {
		for (uint32_t i = record->count; i-- > 0;)
			if (!record->blocks[i].gone)
				store_one(index, record->lane, &blocks, record->hashes[i],
					record->keys[i]);
	} else {
		kvw_kvpark_count_dropped(&index->park);
	}
}

/* Resumes records that are ready. Records that become ready on the way are appended, so that the
 * depth of a chain costs no stack. */
static void resume(struct kvw_kvindex *index)
{
	struct kvw_kvrecord *record = kvw_kvpark_ready(&index->park);

	while (record != NULL) {
		resume_one(index, record);
		kvw_kvpark_free(&index->park, record);
		record = kvw_kvpark_ready(&index->park);
	}
}

static void check_from(struct kvw_kvindex_from from, enum kvw_tier tier)
{
	assert(from.worker < KVW_MAX_WORKERS);
	assert(from.source < KVW_KVINDEX_SOURCES);
	assert((unsigned)tier < KVW_TIER_COUNT);
	(void)from;
	(void)tier;
}

void kvw_kvindex_stored(struct kvw_kvindex *index, struct kvw_kvindex_from from,
	const struct kvw_kvindex_blocks *blocks)
{
	check_from(from, blocks->tier);
	/* From the end, so that the first blocks of a chain are its newest. */
	for (uint32_t i = blocks->count; i-- > 0;)
		store_one(index, kvw_kvlane(from), blocks, blocks->hashes[i], blocks->keys[i]);
	resume(index);
}

void kvw_kvindex_removed(struct kvw_kvindex *index, struct kvw_kvindex_from from,
	const struct kvw_kvindex_blocks *blocks)
{
	uint32_t lane = kvw_kvlane(from);

	check_from(from, blocks->tier);
	for (uint32_t i = 0; i < blocks->count; i++) {
		uint64_t hash = blocks->hashes[i];

		if (!kvw_kvlocal_removed(&index->local, lane, blocks->tier, hash) &&
			!kvw_kvpark_removed(&index->park,
				kvw_kvword(&index->local, kvw_kvcell(lane, blocks->tier)), hash))
			count_one(&index->unknown_removes);
	}
}

void kvw_kvindex_cleared(struct kvw_kvindex *index, uint32_t worker, uint32_t source, uint32_t tier)
{
	bool all = source == KVW_KVINDEX_ANY;
	struct kvw_kvindex_from from = {worker, all ? 0 : source};

	check_from(from, tier == KVW_KVINDEX_ANY ? KVW_TIER_DEVICE : (enum kvw_tier)tier);
	kvw_kvlocal_forget(&index->local, kvw_kvlane(from), all ? KVW_KVINDEX_SOURCES : 1, tier);
	count_one(&index->clears);
}

void kvw_kvindex_purge(struct kvw_kvindex *index, uint32_t worker)
{
	struct kvw_kvindex_from from = {worker, 0};

	check_from(from, KVW_TIER_DEVICE);
	kvw_kvlocal_forget(&index->local, kvw_kvlane(from), KVW_KVINDEX_SOURCES, KVW_KVINDEX_ANY);
	count_one(&index->purges);
}

void kvw_kvindex_set_keys(struct kvw_kvindex *index, kvw_kvindex_keys_fn *keys, void *keys_ctx)
{
	index->keys = keys;
	index->keys_ctx = keys_ctx;
}

void kvw_kvindex_require(
	struct kvw_kvindex *index, uint32_t worker, uint32_t among, uint32_t sources)
{
	struct kvw_kvindex_from from = {worker, 0};

	check_from(from, KVW_TIER_DEVICE);
	kvw_kvlocal_require(&index->local, worker, among, sources);
}

enum kvw_err kvw_kvindex_key_of(
	struct kvw_kvindex *index, struct kvw_kvindex_from from, uint64_t hash, uint64_t *key)
{
	check_from(from, KVW_TIER_DEVICE);
	return kvw_kvlocal_key(&index->local, kvw_kvlane(from), hash, key) ? KVW_OK : KVW_ENOTFOUND;
}

void kvw_kvindex_park(struct kvw_kvindex *index, struct kvw_kvindex_from from,
	const struct kvw_kvindex_blocks *blocks, uint64_t parent, const void *payload,
	size_t payload_bytes, int64_t now_ns)
{
	uint32_t lane = kvw_kvlane(from);
	uint64_t key = 0;

	check_from(from, blocks->tier);
	kvw_kvpark_expire(&index->park, now_ns);
	kvw_kvpark_add(&index->park, from, blocks,
		kvw_kvword(&index->local, kvw_kvcell(lane, blocks->tier)), parent, payload,
		payload_bytes, now_ns);
	if (kvw_kvlocal_key(&index->local, lane, parent, &key)) {
		kvw_kvpark_wake(&index->park, lane, parent);
		resume(index);
	}
}

void kvw_kvindex_tick(struct kvw_kvindex *index, int64_t now_ns)
{
	kvw_kvpark_expire(&index->park, now_ns);
	kvw_kvlocal_sweep(&index->local, SWEEP_PER_TICK);
}

/* --- readers --- */

void kvw_kvindex_match(struct kvw_kvindex *index, uint32_t space, const uint64_t *keys,
	uint32_t count, uint32_t block_tokens, struct kvw_kvindex_hits *hits)
{
	kvw_kvmatch(&index->local, kvw_kvkey(space, 0), keys, count, block_tokens, hits);
}

uint32_t kvw_kvindex_held(
	const struct kvw_kvindex *index, uint32_t worker, uint32_t sources, enum kvw_tier tier)
{
	uint32_t most = 0;

	for (uint32_t s = 0; sources >> s != 0; s++) {
		uint32_t lane =
			kvw_kvlane((struct kvw_kvindex_from){.worker = worker, .source = s});
		uint32_t live = 0;

		if ((sources >> s & 1) != 0)
			live = kvw_kvlive(&index->local, kvw_kvcell(lane, tier));
		most = live > most ? live : most;
	}
	return most;
}

static uint64_t read_counter(_Atomic uint64_t *counter)
{
	return atomic_load_explicit(counter, memory_order_relaxed);
}

void kvw_kvindex_stats(struct kvw_kvindex *index, struct kvw_kvindex_stats *out)
{
	struct kvw_kvlocal *local = &index->local;
	uint64_t each = sizeof(struct kvw_kventry);

	*out = (struct kvw_kvindex_stats){
		.blocks = read_counter(&local->table.keys),
		.holders = read_counter(&local->used),
		.stale = read_counter(&local->stale),
		.bytes_limit = index->mapped_bytes,
		.parked = read_counter(&index->park.records),
		.parked_bytes = read_counter(&index->park.bytes),
		.parked_limit = index->park.bytes_limit,
		.dropped = read_counter(&local->dropped),
		.parked_dropped = read_counter(&index->park.dropped),
		.unknown_removes = read_counter(&index->unknown_removes),
		.purges = read_counter(&index->purges),
		.clears = read_counter(&index->clears),
	};
	/* Memory of the fixed part, and of the used part of the arrays. */
	out->bytes = kvw_kvlocal_bytes(local->count) -
		     (uint64_t)local->count * (sizeof(struct kvw_kvslot) + each) +
		     read_counter(&local->table.used) * sizeof(struct kvw_kvslot) +
		     out->holders * each;
}
