/*
 * objects_parts.h - what the files of kvtierd's objects share.
 *
 * objects.c: creation and end, the two threads, statistics. objects_put.c: putting and replacing.
 * objects_lease.c: leases. objects_admin.c: erases, lists, names of objects that are gone.
 * objects_names.c: names and their keys.
 */
#ifndef KVT_OBJECTS_PARTS_H
#define KVT_OBJECTS_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "daemon/catalog.h"
#include "daemon/generations.h"
#include "daemon/lease_table.h"
#include "daemon/objects.h"

#define KVT_OBJECTS_THREADS 2 /* one thread grants leases, another does periodic work */

/* A lease call that waits for a load. */
struct kvt_pending {
	struct kvt_pending *next, *prev; /* under pending_lock */
	kvt_lease_done_fn done;
	void *user;
	struct kvt_key key;
	uint64_t ttl_ns;
	bool unchecked; /* as wished */
	struct kvt_object_name name; /* its bytes follow */
};

struct kvt_objects_counters {
	_Atomic uint64_t puts, put_bytes, stored, replaced, same, put_aborted, put_refused;
	_Atomic uint64_t leases, lease_hits, lease_misses, lease_refused, releases, expired;
	_Atomic uint64_t corrupt;
};

struct kvt_objects {
	const struct kvt_surroundings *surroundings; /* borrowed */
	struct kvt_segment_file *segment;            /* borrowed */
	struct kvt *cache;
	/* there is a shared tier, which may have objects that this process does not know */
	bool shared;
	uint64_t ttl_max_ns, grace_ns, object_max, put_room, memory_only;

	struct kvt_lease_table *leases;
	struct kvt_objects_counters counters;
	_Atomic uint64_t puts_now, put_bytes_now; /* being filled */
	_Atomic uint64_t staged; /* counter from which keys of staged puts are made */
	uint64_t nonce[2];                        /* random part of these keys; constant */
	struct kvt_tenant staging; /* the tenant to which room for staged puts is charged */

	pthread_mutex_t pending_lock;
	struct kvt_pending *pending;
	bool refused_all; /* set by kvt_leases_end, after both threads have ended */

	struct kvt_catalog *catalog;
	struct kvt_generation_table *generations;
	struct kvt_tenant *limited; /* buckets with limits of their own; owned */
	size_t limited_count;
	/* last name that the sweep looked at; used by the keeping thread */
	struct kvt_catalog_item *swept;
	int64_t sweep_ns;               /* ... and when the next sweep begins */

	pthread_t threads[KVT_OBJECTS_THREADS];
	int thread_count;
	_Atomic bool stop;
	int wake; /* eventfd */
};

static inline void kvt_objects_count(_Atomic uint64_t *counter, uint64_t by)
{
	atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

/* --- objects_names.c --- */

bool kvt_object_name_valid(const struct kvt_object_name *name);
/* Copies a name's bytes to `to`, which must have room for them, and returns the copy. */
struct kvt_object_name kvt_object_name_copy(const struct kvt_object_name *name, char *to);
/* Computes the object's present key. A later change of generations makes another key. */
void kvt_object_key(struct kvt_objects *o, const struct kvt_object_name *name, struct kvt_key *out);
/* Returns the slot whose number is part of the object's key. */
uint32_t kvt_object_slot(const struct kvt_object_name *name);

/* Returns the fastest tier that is known to have the key, or KVT_TIER_NONE. */
uint8_t kvt_object_tier(struct kvt_objects *o, const struct kvt_key *key);

/* Returns whether certainly no tier has the key. False if a tier has it or may have it: a tier that
 * is not in use, a shared one that did not answer. Engines with libkvtier rely on this: they
 * compute again a chunk that no tier has. */
bool kvt_object_is_nowhere(struct kvt_objects *o, const struct kvt_key *key);

/* Returns whether memory or a tier's index has the key, even if the tier is not in use now. */
bool kvt_object_is_known(struct kvt_objects *o, const struct kvt_key *key);

/* Returns whether all tiers show their content: a tier that is not in use, or that could not be
 * opened (another process owns its store), does not. */
bool kvt_object_tiers_work(struct kvt_objects *o);

/* --- objects_put.c --- */

/* Returns whether objects of this bucket are charged to the tenants that clients name. */
bool kvt_bucket_has_tenants(const struct kvt_objects *o, const struct kvt_tenant *bucket);

/* --- objects_admin.c --- */

/* Gives an object another key, and gives up what was stored under `old`. Waits for the disk, or the
 * shared tier. KVT_EIO: nothing is promised. */
enum kvt_status kvt_object_rename(
	struct kvt_objects *o, const struct kvt_object_name *name, const struct kvt_key *old) KVT_MUST_CHECK;

/* Looks at some names, and forgets those that no tier has. Called by the keeping thread. */
void kvt_names_sweep(struct kvt_objects *o);

/* --- objects_lease.c --- */

/* Handles gets that libkvtier has finished. Called by the granting thread. */
void kvt_leases_poll(struct kvt_objects *o);
/* Ends leases whose time is over; returns how many. Called by the granting thread. */
size_t kvt_leases_expire(struct kvt_objects *o);
/* Ends all waits and all leases, and saves when the last lease would have ended. Called after both
 * threads have ended. */
void kvt_leases_end(struct kvt_objects *o);

#endif
