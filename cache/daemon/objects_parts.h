/*
 * objects_parts.h - what the files of kvtierd's objects share.
 *
 * objects.c: life, the own threads, statistics. objects_put.c: putting and replacing.
 * objects_lease.c: leases. objects_admin.c: erasing, lists, and names that nothing has any more.
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

#define KVT_OBJECTS_THREADS 2 /* one grants, one keeps */

/* A lease that waits for a load. */
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
	bool shared; /* a tier may have what is not known here */
	uint64_t ttl_max_ns, grace_ns, object_max, put_room, memory_only;

	struct kvt_lease_table *leases;
	struct kvt_objects_counters counters;
	_Atomic uint64_t puts_now, put_bytes_now; /* being filled */
	_Atomic uint64_t staged;                  /* numbers names of what is being staged */
	uint64_t nonce[2];                        /* of these names; constant */
	struct kvt_tenant staging;                /* room for staging is charged to it */

	pthread_mutex_t pending_lock;
	struct kvt_pending *pending;
	bool refused_all; /* by kvt_leases_end; the own threads are gone */

	struct kvt_catalog *catalog;
	struct kvt_generation_table *generations;
	struct kvt_tenant *limited; /* buckets with limits of their own; owned */
	size_t limited_count;
	struct kvt_catalog_item *swept; /* of the keeping thread: the last name looked at */
	int64_t sweep_ns;               /* ... and when to begin again */

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
/* Copies a name's bytes to `to`, which has room for them. */
struct kvt_object_name kvt_object_name_copy(const struct kvt_object_name *name, char *to);
/* Its present key. Look again when it matters whether that has changed. */
void kvt_object_key(struct kvt_objects *o, const struct kvt_object_name *name, struct kvt_key *out);
/* Whose number is part of its key. */
uint32_t kvt_object_slot(const struct kvt_object_name *name);

/* The fastest tier that is known to have it or KVT_TIER_NONE. */
uint8_t kvt_object_tier(struct kvt_objects *o, const struct kvt_key *key);

/* No tier has it, or may have it without showing it: one that is left alone for a while, a shared one that did not
 * answer. Engines of libkvtier rest on it: of what is nowhere they make another one. */
bool kvt_object_is_nowhere(struct kvt_objects *o, const struct kvt_key *key);

/* Memory or a tier's index has it, though the tier may be left alone now. */
bool kvt_object_is_known(struct kvt_objects *o, const struct kvt_key *key);

/* Whether what they hold is known: one that is left alone for a while, or that could not be opened (another
 * process owns its store), shows nothing. */
bool kvt_object_tiers_work(struct kvt_objects *o);

/* --- objects_put.c --- */

/* Are the tenants of this bucket kept apart, as far as their clients name them? */
bool kvt_bucket_has_tenants(const struct kvt_objects *o, const struct kvt_tenant *bucket);

/* --- objects_admin.c --- */

/* An object gets another key, and what it was is given up. Waits for the disk, or the shared tier. KVT_EIO: nothing is
 * promised. */
enum kvt_status kvt_object_rename(
	struct kvt_objects *o, const struct kvt_object_name *name, const struct kvt_key *old) KVT_MUST_CHECK;

/* Looks at some names, and forgets those that no tier has. The keeping thread. */
void kvt_names_sweep(struct kvt_objects *o);

/* --- objects_lease.c --- */

/* What libkvtier has finished. The granting thread. */
void kvt_leases_poll(struct kvt_objects *o);
/* Ends what is over; returns how many. The granting thread. */
size_t kvt_leases_expire(struct kvt_objects *o);
/* Nothing waits and nothing is leased any more; the segment knows until when. The own threads are
 * gone. */
void kvt_leases_end(struct kvt_objects *o);

#endif
