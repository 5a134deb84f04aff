/*
 * fragments.c - remembers which texts were sent to which workers.
 *
 * Each worker has a clock that counts the tokens of new texts sent to it, in units of 64. An
 * entry's second word has the worker and the worker's clock at the entry's last use: worker in bits
 * 0 to 15, a mark of use in bit 16, the clock in bits 32 to 63. The clock of 32 bits goes around
 * after 2^38 tokens; an entry that is by chance half of that old counts as held once.
 */
#include "routing/fragments.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "kvway/load.h"

#define WAYS  8
#define UNIT  64u
#define USED  (UINT64_C(1) << 16)
#define LEAST 16u /* sets */

struct entry {
	_Atomic uint64_t text; /* hash ^ meta */
	_Atomic uint64_t meta; /* 0: empty */
};

struct set {
	_Alignas(128) struct entry entries[WAYS];
};

struct kvw_fragments {
	struct set *sets; /* owned */
	uint64_t mask;    /* count of sets - 1 */
	_Atomic uint64_t used;
	_Alignas(64) _Atomic uint32_t clocks[KVW_MAX_WORKERS];
	/* by worker: entries with an older clock are forgotten */
	_Alignas(64) _Atomic uint32_t floors[KVW_MAX_WORKERS];
};

enum kvw_err kvw_fragments_create(uint64_t bytes, struct kvw_fragments **out)
{
	struct kvw_fragments *f = aligned_alloc(64, (sizeof(*f) + 63) / 64 * 64);
	uint64_t sets = LEAST;

	while (sets * 2 * sizeof(struct set) <= bytes)
		sets *= 2;
	if (f == NULL)
		return KVW_ENOMEM;
	memset(f, 0, sizeof(*f));
	f->sets = aligned_alloc(128, sets * sizeof(struct set));
	if (f->sets == NULL) {
		free(f);
		return KVW_ENOMEM;
	}
	memset(f->sets, 0, sets * sizeof(struct set));
	f->mask = sets - 1;
	*out = f;
	return KVW_OK;
}

void kvw_fragments_destroy(struct kvw_fragments *f)
{
	if (f == NULL)
		return;
	free(f->sets);
	free(f);
}

static uint32_t worker_of(uint64_t meta)
{
	return (uint32_t)(meta & 0xffff);
}

static uint64_t meta_of(uint32_t worker, uint32_t clock)
{
	return (uint64_t)clock << 32 | USED | worker;
}

/* Returns how many units of text the entry's worker got since; UINT32_MAX: the worker has lost the
 * text. */
static uint32_t age_of(const struct kvw_fragments *f, uint64_t meta)
{
	uint32_t worker = worker_of(meta), then = (uint32_t)(meta >> 32);
	uint32_t now = atomic_load_explicit(&f->clocks[worker], memory_order_relaxed);
	uint32_t floor = atomic_load_explicit(&f->floors[worker], memory_order_relaxed);

	return then - floor > now - floor || then == floor ? UINT32_MAX : now - then;
}

static uint32_t held_units(uint64_t held_tokens)
{
	uint64_t units = held_tokens / UNIT;

	return units < UINT32_MAX / 2 ? (uint32_t)units : UINT32_MAX / 2;
}

static struct set *set_of(const struct kvw_fragments *f, uint64_t hash)
{
	return &f->sets[(hash >> 17) & f->mask];
}

/* Returns the entry of a text and a worker, or if there is none the entry to replace. *known: the
 * entry exists. */
static struct entry *place_of(const struct kvw_fragments *f, struct set *set, uint64_t hash,
	uint32_t worker, bool *known, uint64_t *was)
{
	struct entry *place = NULL;
	uint32_t oldest = 0;

	*known = false;
	for (unsigned i = 0; i < WAYS; i++) {
		struct entry *entry = &set->entries[i];
		uint64_t meta = atomic_load_explicit(&entry->meta, memory_order_relaxed);
		uint64_t text = atomic_load_explicit(&entry->text, memory_order_relaxed);
		uint32_t age = meta == 0 ? UINT32_MAX : age_of(f, meta);

		if (meta != 0 && worker_of(meta) == worker && (text ^ meta) == hash) {
			*known = age != UINT32_MAX;
			*was = meta;
			return entry;
		}
		if (place == NULL || age > oldest) {
			place = entry;
			oldest = age;
			*was = meta;
		}
	}
	return place;
}

void kvw_fragments_teach(struct kvw_fragments *f, uint64_t hash, uint32_t tokens, uint32_t worker,
	uint64_t held_tokens)
{
	struct set *set = set_of(f, hash);
	uint64_t was = 0, meta;
	bool known;
	struct entry *entry = place_of(f, set, hash, worker, &known, &was);
	uint32_t units = tokens / UNIT + 1, clock;

	/* A text that the worker still holds does not advance the worker's clock. */
	known = known && age_of(f, was) <= held_units(held_tokens);
	if (known)
		clock = atomic_load_explicit(&f->clocks[worker], memory_order_relaxed);
	else
		clock = atomic_fetch_add_explicit(&f->clocks[worker], units, memory_order_relaxed) +
			units;
	meta = meta_of(worker, clock);
	if (meta == was)
		return;
	atomic_store_explicit(&entry->meta, meta, memory_order_relaxed);
	atomic_store_explicit(&entry->text, hash ^ meta, memory_order_relaxed);
	if (was == 0)
		atomic_fetch_add_explicit(&f->used, 1, memory_order_relaxed);
}

uint32_t kvw_fragments_find(
	const struct kvw_fragments *f, uint64_t hash, uint64_t held_tokens, uint32_t *workers)
{
	const struct set *set = set_of(f, hash);
	uint32_t most = held_units(held_tokens), count = 0;

	for (unsigned i = 0; i < WAYS; i++) {
		uint64_t meta = atomic_load_explicit(&set->entries[i].meta, memory_order_relaxed);
		uint64_t text = atomic_load_explicit(&set->entries[i].text, memory_order_relaxed);
		bool again = false;

		if (meta == 0 || (text ^ meta) != hash || age_of(f, meta) > most)
			continue;
		/* two threads may have made entries for the same worker */
		for (uint32_t k = 0; k < count; k++)
			again |= workers[k] == worker_of(meta);
		if (!again)
			workers[count++] = worker_of(meta);
	}
	return count;
}

void kvw_fragments_purge(struct kvw_fragments *f, uint32_t worker)
{
	/* Entries made from now on are newer than the floor, since each new one advances the
	 * clock. */
	atomic_store_explicit(&f->floors[worker],
		atomic_fetch_add_explicit(&f->clocks[worker], 1, memory_order_relaxed),
		memory_order_relaxed);
}

void kvw_fragments_stats(
	const struct kvw_fragments *f, uint64_t *used, uint64_t *most, uint64_t *bytes)
{
	*used = atomic_load_explicit(&f->used, memory_order_relaxed);
	*most = (f->mask + 1) * WAYS;
	*bytes = (f->mask + 1) * sizeof(struct set) + sizeof(*f);
}
