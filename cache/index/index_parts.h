/*
 * index_parts.h - what the files of this folder share: struct kvt_index and internal functions.
 *
 * read.c: match, hold, release. index.c: life, insert, publish, pins, walks, statistics. leave.c:
 * all removals. family.c: parents and children. tenants.c: bytes of each tenant. entry.c: the lock,
 * the search for an entry, its data.
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

/* Counters of held entries on several cache lines, one per few threads, so that readers do not
 * share one. */
#define KVT_HELD_SHARDS 16
struct kvt_held {
	_Alignas(64) _Atomic int64_t entries;
};

/* A chunk that is not in the index although its children are. */
struct kvt_missing {
	struct kvt_pool_node node;
	struct kvt_key key;
	uint32_t first_child;
};

/* A tenant that has entries in this index. */
struct kvt_tenant_record {
	struct kvt_pool_node node;
	struct kvt_tenant tenant;
	uint32_t entries;           /* the record is removed with its last entry */
	/* LIVE entries in order of use; only kept if there is a limit */
	struct kvt_entry_list list;
	uint64_t used;              /* charges */
	uint64_t refused;           /* entries that the tenant's limit kept out */
};

/* A tenant's own limit. Records stay until the index ends. */
struct kvt_tenant_limit {
	struct kvt_pool_node node;
	struct kvt_tenant tenant;
	uint64_t charge; /* 0: none */
};

/* Entries that will be evicted together, if enough are found: children before parents. */
struct kvt_choice {
	uint64_t *bits;    /* a bit per entry, set if the entry is chosen; owned */
	uint32_t *entries; /* owned */
	size_t count, room;
	uint64_t charge; /* sum of the chosen entries' charges */
};

struct kvt_index {
	/* The following members are constant after create, so that any thread may read them. */
	struct kvt_entry *entries; /* slab.base */
	/* seed of the table's hash, so that callers cannot choose colliding keys */
	uint64_t seed[4];
	struct kvt_surroundings surroundings;
	struct kvt_index_options options;
	struct kvt_policy *policy; /* owned */

	/* Read without a lock. */
	_Alignas(64) struct kvt_table table; /* written under the mutex */
	struct kvt_uses uses;
	struct kvt_held held[KVT_HELD_SHARDS];
	/* entries from this number on were never used; written under the mutex */
	_Atomic uint32_t fresh;

	/* Under the mutex: */
	_Alignas(64) pthread_mutex_t mutex;
	struct kvt_region slab;
	struct kvt_pool tenants;
	struct kvt_pool limits; /* pool of struct kvt_tenant_limit */
	struct kvt_pool missing;
	struct kvt_links *tenant_links; /* per entry; NULL: no tenant limit */
	uint64_t *
		/* a bit per entry that has children, in one array since policies query many in a
		 * row */
		inner;
	uint32_t free;  /* first free entry or KVT_NO_ENTRY */
	uint32_t taken; /* entries that are not free */
	uint32_t guard; /* an entry that must not be evicted now, or KVT_NO_ENTRY */
	struct kvt_choice choice;
	uint32_t expire_cursor;
	uint64_t mortal;               /* taken entries that may expire */
	/* kept up to date, except for the members that stats() computes */
	struct kvt_index_stats counts;
};

/* Reasons why an entry leaves. */
enum kvt_leave {
	KVT_LEAVE_EVICTED, /* the policy has chosen it */
	KVT_LEAVE_LIMITED, /* its tenant is at its limit */
	KVT_LEAVE_PASSED,  /* evicted by its only holder, which does not need it again */
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

/* Returns 32 bits of a key's hash, for the table and for pools. */
uint32_t kvt_index_hash(const struct kvt_index *x, const struct kvt_key *key);

/* Takes the mutex and reports uses to the policy. */
void kvt_index_lock(struct kvt_index *x);
void kvt_index_unlock(struct kvt_index *x);
/* Reports up to `most` uses to the policy. The mutex is held. */
void kvt_index_report_uses(struct kvt_index *x, uint64_t most);

/* Counts one more held entry (+1), or one fewer (-1). */
void kvt_index_count_held(struct kvt_index *x, int64_t change);

/* Returns the entry of a key, FILLING or LIVE, or KVT_NO_ENTRY. The mutex is held. */
uint32_t kvt_index_find(const struct kvt_index *x, const struct kvt_key *key);

/* --- leave.c; the mutex is held --- */

/*
 * Makes a FILLING or LIVE entry GOING, and frees it at once if it has no holds. False, and nothing
 * changed: the entry is in neither phase, or (EVICTED, LIMITED) is held now, or (PASSED) another
 * thread holds it too, or it is pinned.
 */
bool kvt_index_leave(struct kvt_index *x, uint32_t number, enum kvt_leave why);
/* Frees an entry that is GOING and has no hold any more. */
void kvt_index_bury(struct kvt_index *x, uint32_t number);
/* Evicts until a new entry of this charge fits, in all limits, and `spare` of the capacity stays
 * unused. KVT_FULL, KVT_ENOMEM: no entry was evicted, unless readers took holds meanwhile. */
enum kvt_status kvt_index_make_room(
	struct kvt_index *x, const struct kvt_tenant *tenant, uint64_t charge, uint64_t spare);

/* --- family.c; the mutex is held --- */

static inline bool kvt_family_has_children(const struct kvt_index *x, uint32_t number)
{
	return (x->inner[number / 64] >> number % 64 & 1) != 0;
}

/* Links a new entry of `key`: below `parent` (NULL: none), and above children that wait for it. */
void kvt_family_join(struct kvt_index *x, uint32_t number, uint32_t hash, const struct kvt_key *key,
	const struct kvt_key *parent);
/* Makes the entry's children wait for its return, and removes the entry from the list of its
 * parent, or of the record that stands for a missing parent. */
void kvt_family_part(struct kvt_index *x, uint32_t number);

/* --- tenants.c; the mutex is held --- */

static inline struct kvt_tenant_record *kvt_tenant_at(const struct kvt_index *x, uint32_t number)
{
	return kvt_pool_at(&x->tenants, number);
}

/* Returns the number of the tenant's record, or KVT_NO_ENTRY. */
uint32_t kvt_tenant_find(const struct kvt_index *x, const struct kvt_tenant *tenant);
/* Charges one entry to the tenant's record, which is made if needed. KVT_ENOMEM. */
enum kvt_status kvt_tenant_charge(struct kvt_index *x, const struct kvt_tenant *tenant,
	uint64_t charge, uint32_t *number) KVT_MUST_CHECK;
/* Returns the tenant's limit; 0: none. */
uint64_t kvt_tenant_limit_of(const struct kvt_index *x, const struct kvt_tenant *tenant);
/* Undoes a charge; the record is removed with its last entry. */
void kvt_tenant_discharge(struct kvt_index *x, uint32_t number, uint64_t charge);

#endif
