/*
 * index_parts.h - what the files of this folder share: struct kvt_index and their functions.
 *
 * read.c: match, hold, release. index.c: life, insert, publish, pins, walks, statistics. leave.c:
 * all ways out. family.c: parents and children. tenants.c: how much each tenant owns. entry.c: the
 * lock, finding an entry, what it says.
 */
#ifndef KVT_INDEX_PARTS_H
#define KVT_INDEX_PARTS_H

#include <pthread.h>

#include "index/cache_index.h"
#include "index/entry.h"
#include "policies/entry_list.h"
#include "index/pool.h"
#include "index/table.h"
#include "index/uses.h"

/* Holds are counted in several lines, one per few threads, so that readers do not share one. */
#define KVT_HELD_SHARDS 16
struct kvt_held {
	_Alignas(64) _Atomic int64_t entries;
};

/* A chunk that is not here and whose children are. */
struct kvt_missing {
	struct kvt_pool_node node;
	struct kvt_key key;
	uint32_t first_child;
};

/* A tenant that has entries here. */
struct kvt_tenant_record {
	struct kvt_pool_node node;
	struct kvt_tenant tenant;
	uint32_t entries;           /* record goes with the last */
	struct kvt_entry_list list; /* LIVE ones by use; only if there is a limit */
	uint64_t used;              /* charges */
	uint64_t refused;           /* entries that its limit kept out */
};

/* A limit of one tenant's own. Records stay: they are as many as were asked for. */
struct kvt_tenant_limit {
	struct kvt_pool_node node;
	struct kvt_tenant tenant;
	uint64_t charge; /* 0: none */
};

/* Entries that will be evicted together, if enough of them are found: children before parents. */
struct kvt_choice {
	uint64_t *bits;    /* owned: a bit per entry that is among them */
	uint32_t *entries; /* owned */
	size_t count, room;
	uint64_t charge; /* of all of them */
};

struct kvt_index {
	/* Constant after create: read by everybody. */
	struct kvt_entry *entries; /* slab.base */
	uint64_t seed[4]; /* of the table's hash, so that callers cannot choose colliding keys */
	struct kvt_surroundings surroundings;
	struct kvt_index_options options;
	struct kvt_policy *policy; /* owned */

	/* Without a lock. */
	_Alignas(64) struct kvt_table table; /* written under the mutex */
	struct kvt_uses uses;
	struct kvt_held held[KVT_HELD_SHARDS];
	_Atomic uint32_t fresh; /* entries from here on were never used; written under the mutex */

	/* Under the mutex. */
	_Alignas(64) pthread_mutex_t mutex;
	struct kvt_region slab;
	struct kvt_pool tenants;
	struct kvt_pool limits; /* of struct kvt_tenant_limit */
	struct kvt_pool missing;
	struct kvt_links *tenant_links; /* per entry; NULL: no tenant limit */
	uint64_t *
		inner; /* a bit per entry that has children: policies ask about many of them in a row */
	uint32_t free;  /* first free entry or KVT_NO_ENTRY */
	uint32_t taken; /* entries that are not free */
	uint32_t guard; /* an entry that must not be evicted now, or KVT_NO_ENTRY */
	struct kvt_choice choice;
	uint32_t expire_cursor;
	uint64_t mortal;               /* taken entries that may expire */
	struct kvt_index_stats counts; /* kept up to date, but for what stats() adds */
};

/* Why an entry leaves. */
enum kvt_leave {
	KVT_LEAVE_EVICTED, /* the policy's choice */
	KVT_LEAVE_LIMITED, /* its tenant's limit */
	KVT_LEAVE_PASSED,  /* its only holder wanted it once */
	KVT_LEAVE_EXPIRED,
	KVT_LEAVE_ERASED,
	KVT_LEAVE_DROPPED, /* was wrong */
	KVT_LEAVE_DISCARDED,
};

static inline struct kvt_entry *kvt_index_at(const struct kvt_index *x, uint32_t number)
{
	return &x->entries[number];
}

static inline uint64_t kvt_fold(uint64_t a, uint64_t b)
{
	unsigned __int128 product = (unsigned __int128)a * b;

	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* --- entry.c --- */

/* 32 bits for the table and for pools. */
uint32_t kvt_index_hash(const struct kvt_index *x, const struct kvt_key *key);

/* Takes the mutex and reports uses to the policy. */
void kvt_index_lock(struct kvt_index *x);
void kvt_index_unlock(struct kvt_index *x);
/* Reports up to `most` uses to the policy. With the mutex. */
void kvt_index_report_uses(struct kvt_index *x, uint64_t most);

/* One entry became held (+1), or is no more (-1). */
void kvt_index_count_held(struct kvt_index *x, int64_t change);

/* The entry of a key, FILLING or LIVE, or KVT_NO_ENTRY. With the mutex. */
uint32_t kvt_index_find(const struct kvt_index *x, const struct kvt_key *key);

/* --- leave.c, with the mutex --- */

/*
 * FILLING or LIVE -> GOING, and free at once if it has no holds. False, and nothing changed: it is
 * neither, or (EVICTED, LIMITED) it is held now, or (PASSED) held by another as well, or pinned.
 */
bool kvt_index_leave(struct kvt_index *x, uint32_t number, enum kvt_leave why);
/* Ends an entry that is GOING and whose last hold is gone. */
void kvt_index_bury(struct kvt_index *x, uint32_t number);
/* Evicts until a new entry of this charge fits, in all limits, and `spare` of the capacity is unused
 * besides. KVT_FULL, KVT_ENOMEM: nothing was evicted, unless readers took holds meanwhile. */
enum kvt_status kvt_index_make_room(
	struct kvt_index *x, const struct kvt_tenant *tenant, uint64_t charge, uint64_t spare);

/* --- family.c, with the mutex --- */

static inline bool kvt_family_has_children(const struct kvt_index *x, uint32_t number)
{
	return (x->inner[number / 64] >> number % 64 & 1) != 0;
}

/* A new entry of `key` takes its place: below `parent` (NULL: none), above children that wait. */
void kvt_family_join(struct kvt_index *x, uint32_t number, uint32_t hash, const struct kvt_key *key,
	const struct kvt_key *parent);
/* Its children wait for its return; its parent, or its stand-in, forgets it. */
void kvt_family_part(struct kvt_index *x, uint32_t number);

/* --- tenants.c, with the mutex --- */

static inline struct kvt_tenant_record *kvt_tenant_at(const struct kvt_index *x, uint32_t number)
{
	return kvt_pool_at(&x->tenants, number);
}

/* Number of its record or KVT_NO_ENTRY. */
uint32_t kvt_tenant_find(const struct kvt_index *x, const struct kvt_tenant *tenant);
/* Its record, made if needed, charged with one entry. KVT_ENOMEM. */
enum kvt_status kvt_tenant_charge(struct kvt_index *x, const struct kvt_tenant *tenant,
	uint64_t charge, uint32_t *number) KVT_MUST_CHECK;
/* Its limit; 0: none. */
uint64_t kvt_tenant_limit_of(const struct kvt_index *x, const struct kvt_tenant *tenant);
/* The opposite of charge; the record goes with its last entry. */
void kvt_tenant_discharge(struct kvt_index *x, uint32_t number, uint64_t charge);

#endif
