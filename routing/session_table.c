/*
 * session_table.c - a hash table with a list in order of use; both link entries of a fixed array by
 * index.
 *
 * Invariant of a shard: entries [1, fresh) are either on a hash chain and on the list of use, or on
 * the free list; entry 0 is the list's anchor (next = newest, prev = oldest). A change drops
 * expired entries at the old end, at most EXPIRE_STEP, so that no request pays for many.
 */
#include "routing/session_table.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "routing/spin.h"

#define MAX_SHARDS  16
#define SHARD_MIN   4096 /* smaller tables have one shard, and an exact order of use */
#define EXPIRE_STEP 2
#define COPY_STEP   64 /* entries that are copied under one lock */

struct entry {
	uint64_t key;
	int64_t used_ns;
	uint32_t worker;
	uint32_t chain; /* next entry of the same bucket, or of the free list */
	uint32_t newer;
	uint32_t older;
};

struct shard {
	_Alignas(64) atomic_bool lock; /* guards the whole shard */
	struct entry *entries;         /* capacity + 1 entries; entry 0 is the anchor of the list */
	uint32_t *buckets;             /* [bucket_mask + 1] heads of chains; 0: empty */
	uint32_t bucket_mask;
	uint32_t capacity;
	uint32_t count;
	uint32_t fresh; /* entries from here on were never used */
	uint32_t free;  /* head of the free list; 0: empty */
};

struct kvw_session_table {
	uint32_t shard_count;
	_Atomic int64_t ttl_ns; /* a relaxed atomic, since the option may change */
	struct shard shards[MAX_SHARDS];
};

static enum kvw_err shard_init(struct shard *shard, uint32_t capacity)
{
	uint32_t buckets = 16;

	while (buckets < capacity && buckets < (UINT32_MAX >> 1))
		buckets *= 2;
	atomic_init(&shard->lock, false);
	shard->entries = calloc((size_t)capacity + 1, sizeof(*shard->entries));
	shard->buckets = calloc(buckets, sizeof(*shard->buckets));
	shard->bucket_mask = buckets - 1;
	shard->capacity = capacity;
	shard->fresh = 1;
	return shard->entries == NULL || shard->buckets == NULL ? KVW_ENOMEM : KVW_OK;
}

enum kvw_err kvw_session_table_create(
	uint32_t capacity, uint64_t ttl_ns, struct kvw_session_table **out)
{
	struct kvw_session_table *table = aligned_alloc(64, sizeof(*table));
	enum kvw_err err = KVW_OK;

	if (table == NULL)
		return KVW_ENOMEM;
	*table = (struct kvw_session_table){0};
	if (capacity == 0)
		capacity = 1;
	kvw_session_table_set_ttl(table, ttl_ns);
	table->shard_count = capacity < SHARD_MIN ? 1 : MAX_SHARDS;
	for (uint32_t i = 0; i < table->shard_count && err == KVW_OK; i++)
		err = shard_init(&table->shards[i], capacity / table->shard_count);
	if (err != KVW_OK) {
		kvw_session_table_destroy(table);
		return err;
	}
	*out = table;
	return KVW_OK;
}

void kvw_session_table_destroy(struct kvw_session_table *table)
{
	if (table == NULL)
		return;
	for (uint32_t i = 0; i < table->shard_count; i++) {
		free(table->shards[i].entries);
		free(table->shards[i].buckets);
	}
	free(table);
}

void kvw_session_table_set_ttl(struct kvw_session_table *table, uint64_t ttl_ns)
{
	atomic_store_explicit(&table->ttl_ns, ttl_ns < INT64_MAX ? (int64_t)ttl_ns : INT64_MAX,
		memory_order_relaxed);
}

static struct shard *shard_of(struct kvw_session_table *table, uint64_t key)
{
	return &table->shards[key >> 32 & (table->shard_count - 1)];
}

static uint32_t find_session(const struct shard *shard, uint64_t key)
{
	uint32_t i = shard->buckets[key & shard->bucket_mask];

	while (i != 0 && shard->entries[i].key != key)
		i = shard->entries[i].chain;
	return i;
}

static void list_remove(struct shard *shard, uint32_t i)
{
	struct entry *e = &shard->entries[i];

	shard->entries[e->newer].older = e->older;
	shard->entries[e->older].newer = e->newer;
}

/* The anchor's `older` is the newest entry, its `newer` the oldest: the list is a ring. */
static void list_add_newest(struct shard *shard, uint32_t i)
{
	uint32_t newest = shard->entries[0].older;

	shard->entries[i].newer = 0;
	shard->entries[i].older = newest;
	shard->entries[newest].newer = i;
	shard->entries[0].older = i;
}

static void drop(struct shard *shard, uint32_t i)
{
	uint32_t *link = &shard->buckets[shard->entries[i].key & shard->bucket_mask];

	while (*link != i)
		link = &shard->entries[*link].chain;
	*link = shard->entries[i].chain;
	list_remove(shard, i);
	shard->entries[i].worker = KVW_NO_WORKER;
	shard->entries[i].chain = shard->free;
	shard->free = i;
	shard->count--;
}

static bool expired(
	const struct kvw_session_table *table, const struct entry *entry, int64_t now_ns)
{
	return now_ns - entry->used_ns >
	       atomic_load_explicit(&table->ttl_ns, memory_order_relaxed);
}

static void drop_expired(struct kvw_session_table *table, struct shard *shard, int64_t now_ns)
{
	for (unsigned i = 0; i < EXPIRE_STEP; i++) {
		uint32_t oldest = shard->entries[0].newer;

		if (oldest == 0 || !expired(table, &shard->entries[oldest], now_ns))
			return;
		drop(shard, oldest);
	}
}

static uint32_t add_session(struct shard *shard, uint64_t key)
{
	uint32_t i = 0;

	if (shard->count == shard->capacity)
		drop(shard, shard->entries[0].newer);
	i = shard->free;
	if (i != 0)
		shard->free = shard->entries[i].chain;
	else
		i = shard->fresh++;
	shard->entries[i].key = key;
	shard->entries[i].chain = shard->buckets[key & shard->bucket_mask];
	shard->buckets[key & shard->bucket_mask] = i;
	list_add_newest(shard, i);
	shard->count++;
	return i;
}

static void touch(struct shard *shard, uint32_t i, int64_t now_ns)
{
	list_remove(shard, i);
	list_add_newest(shard, i);
	shard->entries[i].used_ns = now_ns;
}

uint32_t kvw_session_table_use(struct kvw_session_table *table, uint64_t key, int64_t now_ns)
{
	struct shard *shard = shard_of(table, key);
	uint32_t worker = KVW_NO_WORKER;
	uint32_t i = 0;

	kvw_spin_lock(&shard->lock);
	i = find_session(shard, key);
	if (i != 0 && expired(table, &shard->entries[i], now_ns)) {
		drop(shard, i);
	} else if (i != 0) {
		touch(shard, i, now_ns);
		worker = shard->entries[i].worker;
	}
	drop_expired(table, shard, now_ns);
	kvw_spin_unlock(&shard->lock);
	return worker;
}

uint32_t kvw_session_table_look(struct kvw_session_table *table, uint64_t key, int64_t now_ns)
{
	struct shard *shard = shard_of(table, key);
	uint32_t worker = KVW_NO_WORKER;
	uint32_t i = 0;

	kvw_spin_lock(&shard->lock);
	i = find_session(shard, key);
	if (i != 0 && !expired(table, &shard->entries[i], now_ns))
		worker = shard->entries[i].worker;
	kvw_spin_unlock(&shard->lock);
	return worker;
}

uint32_t kvw_session_table_place(struct kvw_session_table *table, uint64_t key, uint32_t old,
	uint32_t worker, int64_t now_ns)
{
	struct shard *shard = shard_of(table, key);
	uint32_t i = 0;

	kvw_spin_lock(&shard->lock);
	i = find_session(shard, key);
	if (i == 0) {
		i = add_session(shard, key);
		shard->entries[i].worker = worker;
	} else if (shard->entries[i].worker == old) {
		shard->entries[i].worker = worker;
	}
	worker = shard->entries[i].worker;
	touch(shard, i, now_ns);
	kvw_spin_unlock(&shard->lock);
	return worker;
}

uint64_t kvw_session_table_count(struct kvw_session_table *table)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < table->shard_count; i++) {
		struct shard *shard = &table->shards[i];

		kvw_spin_lock(&shard->lock);
		count += shard->count;
		kvw_spin_unlock(&shard->lock);
	}
	return count;
}

void kvw_session_table_forget(struct kvw_session_table *table, uint32_t worker)
{
	for (uint32_t i = 0; i < table->shard_count; i++) {
		struct shard *shard = &table->shards[i];

		kvw_spin_lock(&shard->lock);
		for (uint32_t e = 1; e < shard->fresh; e++)
			if (shard->entries[e].worker == worker)
				shard->entries[e].worker = KVW_NO_WORKER;
		kvw_spin_unlock(&shard->lock);
	}
}

/* Copies the next entries that have a worker, beginning at *at. Returns how many. */
static unsigned copy_some(struct shard *shard, uint32_t *at, struct entry *out)
{
	unsigned count = 0;
	uint32_t end = 0;

	kvw_spin_lock(&shard->lock);
	end = shard->fresh - *at < COPY_STEP ? shard->fresh : *at + COPY_STEP;
	for (; *at < end; ++*at)
		if (shard->entries[*at].worker != KVW_NO_WORKER)
			out[count++] = shard->entries[*at];
	kvw_spin_unlock(&shard->lock);
	return count;
}

enum kvw_err kvw_session_table_each(struct kvw_session_table *table,
	enum kvw_err (*fn)(void *arg, uint64_t key, uint32_t worker, int64_t used_ns), void *arg)
{
	struct entry copy[COPY_STEP];
	enum kvw_err err = KVW_OK;

	for (uint32_t s = 0; s < table->shard_count; s++)
		for (uint32_t at = 1, before = 0; at != before && err == KVW_OK;) {
			unsigned count = 0;

			before = at;
			count = copy_some(&table->shards[s], &at, copy);
			for (unsigned i = 0; i < count && err == KVW_OK; i++)
				err = fn(arg, copy[i].key, copy[i].worker, copy[i].used_ns);
		}
	return err;
}

void kvw_session_table_recall(
	struct kvw_session_table *table, uint64_t key, uint32_t worker, int64_t used_ns)
{
	(void)kvw_session_table_place(table, key, KVW_NO_WORKER, worker, used_ns);
}

uint32_t kvw_session_table_capacity(const struct kvw_session_table *table)
{
	return table->shards[0].capacity * table->shard_count;
}
