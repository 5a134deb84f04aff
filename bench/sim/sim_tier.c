/*
 * sim_tier.c - entries in one array, linked by index into the order of use and into hash chains.
 *
 * Entry 0 is none; as an index it means "no entry". It is also the head of the order, a ring: its
 * `newer` is the oldest entry, its `older` the newest. Free entries are chained by `chain`.
 */
#include <stdlib.h>

#include "bench/sim/sim_tier.h"

struct entry {
	uint64_t key;
	uint32_t older, newer;
	uint32_t chain; /* next entry of the same bucket, or next free entry */
	bool pinned;
};

struct kvb_tier {
	struct entry *entries; /* owned; `capacity` entries and the list's head */
	uint32_t *buckets;     /* owned */
	uint32_t bucket_mask;
	uint32_t capacity, count;
	uint32_t free; /* first free entry */
	kvb_tier_fn *fn;
	void *user;
};

static void link_newest(struct kvb_tier *t, uint32_t i)
{
	struct entry *e = t->entries;

	e[i].older = e[0].older;
	e[i].newer = 0;
	e[e[0].older].newer = i;
	e[0].older = i;
}

static void unlink_use(struct kvb_tier *t, uint32_t i)
{
	struct entry *e = t->entries;

	e[e[i].older].newer = e[i].newer;
	e[e[i].newer].older = e[i].older;
}

static uint32_t *bucket_of(const struct kvb_tier *t, uint64_t key)
{
	uint64_t mixed = key * UINT64_C(0x9e3779b97f4a7c15);

	return &t->buckets[(uint32_t)(mixed >> 32) & t->bucket_mask];
}

static uint32_t entry_of(const struct kvb_tier *t, uint64_t key)
{
	uint32_t i = *bucket_of(t, key);

	while (i != 0 && t->entries[i].key != key)
		i = t->entries[i].chain;
	return i;
}

static void drop(struct kvb_tier *t, uint32_t i)
{
	uint32_t *link = bucket_of(t, t->entries[i].key);

	while (*link != i)
		link = &t->entries[*link].chain;
	*link = t->entries[i].chain;
	unlink_use(t, i);
	t->entries[i].pinned = false;
	t->entries[i].chain = t->free;
	t->free = i;
	t->count--;
	if (t->fn != NULL)
		t->fn(t->user, false, t->entries[i].key, i);
}

static void admit(struct kvb_tier *t, uint64_t key)
{
	uint32_t i = t->free, *bucket = bucket_of(t, key);

	t->free = t->entries[i].chain;
	t->entries[i].key = key;
	t->entries[i].chain = *bucket;
	*bucket = i;
	link_newest(t, i);
	t->count++;
	if (t->fn != NULL)
		t->fn(t->user, true, key, i);
}

void kvb_tier_restart(struct kvb_tier *t)
{
	for (uint32_t i = 0; i <= t->bucket_mask; i++)
		t->buckets[i] = 0;
	t->entries[0] = (struct entry){0};
	for (uint32_t i = 1; i <= t->capacity; i++)
		t->entries[i] = (struct entry){.chain = i < t->capacity ? i + 1 : 0};
	t->free = 1;
	t->count = 0;
}

struct kvb_tier *kvb_tier_create(uint32_t chunks, kvb_tier_fn *fn, void *user)
{
	struct kvb_tier *t = calloc(1, sizeof(*t));
	uint32_t buckets = 1;

	if (t == NULL)
		return NULL;
	while (buckets < chunks && buckets < UINT32_MAX / 2)
		buckets *= 2;
	t->capacity = chunks;
	t->bucket_mask = buckets - 1;
	t->fn = fn;
	t->user = user;
	t->entries = calloc((size_t)chunks + 1, sizeof(*t->entries));
	t->buckets = calloc(buckets, sizeof(*t->buckets));
	if (t->entries == NULL || t->buckets == NULL) {
		kvb_tier_destroy(t);
		return NULL;
	}
	kvb_tier_restart(t);
	return t;
}

void kvb_tier_destroy(struct kvb_tier *t)
{
	if (t == NULL)
		return;
	free(t->entries);
	free(t->buckets);
	free(t);
}

uint32_t kvb_tier_find(const struct kvb_tier *t, const uint64_t *keys, uint32_t count)
{
	uint32_t n = 0;

	while (n < count && entry_of(t, keys[n]) != 0)
		n++;
	return n;
}

void kvb_tier_touch(struct kvb_tier *t, const uint64_t *keys, uint32_t count)
{
	while (count-- > 0) {
		uint32_t i = entry_of(t, keys[count]);

		if (i == 0)
			continue;
		unlink_use(t, i);
		link_newest(t, i);
	}
}

/* Evicts until `wanted` entries are free, or all that could be evicted are. */
static void make_room(struct kvb_tier *t, uint32_t wanted)
{
	uint32_t i = t->entries[0].newer;

	while (i != 0 && t->capacity - t->count < wanted) {
		uint32_t next = t->entries[i].newer;

		if (!t->entries[i].pinned)
			drop(t, i);
		i = next;
	}
}

void kvb_tier_store(struct kvb_tier *t, const uint64_t *keys, uint32_t count)
{
	uint32_t fresh = 0;

	for (uint32_t n = 0; n < count; n++)
		fresh += entry_of(t, keys[n]) == 0;
	make_room(t, fresh);
	for (uint32_t n = 0; n < count && t->free != 0; n++)
		if (entry_of(t, keys[n]) == 0)
			admit(t, keys[n]);
}

uint32_t kvb_tier_pin(struct kvb_tier *t, const uint64_t *keys, uint32_t count)
{
	uint32_t n = 0, i;

	for (; n < count && (i = entry_of(t, keys[n])) != 0; n++)
		t->entries[i].pinned = true;
	return n;
}

uint32_t kvb_tier_clear(struct kvb_tier *t)
{
	uint32_t before = t->count;

	make_room(t, t->capacity);
	return before - t->count;
}

uint32_t kvb_tier_count(const struct kvb_tier *t)
{
	return t->count;
}

void kvb_tier_copy(const struct kvb_tier *t, uint64_t *out)
{
	for (uint32_t i = t->entries[0].newer; i != 0; i = t->entries[i].newer)
		*out++ = t->entries[i].key;
}
