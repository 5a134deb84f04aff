/*
 * objects.h - the objects of kvtierd: buckets and keys over one libkvtier, and leases on them.
 *
 * An object is a run of bytes under a bucket and a key, both as the client gave them, URL-decoded.
 * It is kept as a chunk of libkvtier, whose L1 lies in the daemon's segment; below L1 are the tiers
 * that the configuration names. Its storage key is a hash of bucket, key and generations
 * (objects_names.c). Its tenant, whose limit it is charged to, is the one that its client names.
 * The bucket is the tenant instead where the client names none, where the bucket has a limit of its
 * own, and where a shared tier exists, since an erase of the bucket must reach objects that other
 * processes put there. Objects have no parents.
 *
 * Leases: a lease names the offsets of an object's bytes in the segment. These bytes stay unchanged
 * until the lease is released, or its time and a grace period are over. Bytes are checked before a
 * lease is granted, since clients map the segment writable.
 *
 * Replacing: an object whose bytes differ is replaced; the old bytes live until their leases end.
 * Where a lower tier may have the old bytes, the change is durable before the put ends.
 *
 * Threads: any. `done` is called on the objects' own thread, or inside the call.
 */
#ifndef KVT_OBJECTS_H
#define KVT_OBJECTS_H

#include "kvway/slice.h"
#include "chunk/slots.h"
#include "daemon/segment.h"

#define KVT_LEASE_ID_BYTES  33 /* URL-safe text with its NUL; the id is random */
#define KVT_BUCKET_MOST     128
#define KVT_OBJECT_KEY_MOST 1024

struct kvt_objects;

struct kvt_bucket_limit {
	const char *bucket;
	uint64_t memory_bytes, nvme_bytes; /* 0: none */
};

struct kvt_objects_options {
	const struct kvt_config *cache;   /* its l1_backing and l1_capacity describe the segment */
	struct kvt_segment_file *segment; /* borrowed until destroy */
	const struct kvt_surroundings *surroundings;
	uint64_t lease_ttl_max_ns; /* limit of a lease's time; longer requests get this */
	uint64_t lease_grace_ns;   /* time that bytes are kept after a lease's end */
	uint32_t leases_max;       /* at once */
	uint64_t object_max_bytes;
	uint64_t memory_only_bytes; /* objects up to this size stay in memory, out of lower tiers */
	const char *catalog_path; /* file of the catalog, for lists after a restart; NULL: none */
	/* file of the table of generations; NULL: next to the segment */
	const char *generations_path;
	const struct kvt_bucket_limit *limits;
	size_t limit_count;
};

enum kvt_status kvt_objects_create(const struct kvt_objects_options *options, char *why,
	struct kvt_objects **out) KVT_MUST_CHECK;
void kvt_objects_destroy(struct kvt_objects *o); /* no put and no lease call may be under way */

struct kvt_object_name {
	/* neither is empty, and both are within the limits above; else KVT_EINVAL */
	struct kvw_slice bucket, key;
};

/* --- put --- */

struct kvt_object_put; /* a reservation of room in the segment, being filled */

/* Reserves room in the segment for an object. KVT_FULL: no room; KVT_BUSY: the segment must not be
 * written yet (after a restart) or too many puts are under way; KVT_EINVAL: name or size. tenant:
 * named by the client; NULL: it named none. The segments are borrowed until end or abort. */
enum kvt_status kvt_object_put_begin(struct kvt_objects *o, const struct kvt_object_name *name,
	const struct kvt_tenant *tenant, uint64_t bytes, struct kvt_object_put **out, const struct kvt_segment **segments,
	uint32_t *count) KVT_MUST_CHECK;

/* After KVT_FULL of begin: returns whether the tenant's limit keeps the object out, rather than a
 * full segment. */
bool kvt_object_is_limited(struct kvt_objects *o, const struct kvt_object_name *name,
	const struct kvt_tenant *tenant, uint64_t bytes);

enum kvt_put_outcome {
	KVT_PUT_STORED,
	KVT_PUT_REPLACED,
	KVT_PUT_SAME,
	KVT_PUT_LIMITED, /* with KVT_FULL: the tenant's limit left no room */
};

/* Ends a put whose bytes are all in place, and takes it over; sum is the checksum of the bytes
 * (kvt_checksum_*, made while they came in). KVT_FULL, KVT_BUSY: not stored. *outcome is set with
 * KVT_OK, and with KVT_FULL. KVT_MISS, only if wait is false: the object replaces another one, so
 * that the call would wait for the disk or the shared tier; the caller keeps the put, and calls
 * again from a thread that may wait, for about a second. */
enum kvt_status kvt_object_put_end(struct kvt_objects *o, struct kvt_object_put *put,
	const struct kvt_checksum *sum, bool wait, enum kvt_put_outcome *outcome) KVT_MUST_CHECK;
void kvt_object_put_abort(struct kvt_objects *o, struct kvt_object_put *put);

/* --- leases --- */

struct kvt_grant {
	char id[KVT_LEASE_ID_BYTES];
	const struct kvt_segment
		*fragments; /* arena_offset and bytes are set; borrowed until done returns */
	uint32_t count;
	uint64_t bytes;
};

/* status KVT_OK: granted; KVT_MISS: no tier has the object; KVT_ECANCELED: not now, but it may
 * exist (it did not arrive within timeout_ns, memory has no room for it, the tier that may have it
 * is not in use or did not answer, or the segment must not be written yet); KVT_BUSY: too many
 * leases. */
typedef void (*kvt_lease_done_fn)(
	void *user, enum kvt_status status, const struct kvt_grant *grant);

struct kvt_lease_wish {
	uint64_t timeout_ns; /* longest time for a lower tier to bring the object */
	uint64_t ttl_ns;
	/* the client checks the bytes itself after copying them; otherwise all are checked first */
	bool unchecked;
};

/* Asks for a lease; calls done exactly once. */
void kvt_object_lease(struct kvt_objects *o, const struct kvt_object_name *name,
	const struct kvt_lease_wish *wish, kvt_lease_done_fn done, void *user);

/* KVT_MISS: no lease has this id (any more). */
enum kvt_status kvt_object_release(struct kvt_objects *o, struct kvw_slice id) KVT_MUST_CHECK;

/* --- administration --- */

/* Erases an object. KVT_MISS: there is no such object. Durable on return, which may take a second;
 * KVT_EIO: nothing is promised. */
enum kvt_status kvt_object_erase(
	struct kvt_objects *o, const struct kvt_object_name *name) KVT_MUST_CHECK;
/* Erases a bucket, if tenant is NULL: all its objects, and everything that engines with libkvtier
 * stored in this daemon, in any bucket. Otherwise erases all objects of the tenant, in any bucket.
 * KVT_EIO, KVT_BUSY: the erase may not be durable. */
enum kvt_status kvt_bucket_erase(struct kvt_objects *o, struct kvw_slice bucket,
	const struct kvt_tenant *tenant, size_t *erased) KVT_MUST_CHECK;

/* Reads the generations for engines with libkvtier that use this daemon (generations.h). KVT_BUSY:
 * not known yet. */
enum kvt_status kvt_objects_table(struct kvt_objects *o, struct kvt_table_ask *ask) KVT_MUST_CHECK;
/* Carries out an engine's erase: the slot ask->raise gets another generation, and objects of
 * ask->tenant (NULL: none) are removed at once, leased ones when their lease ends. May wait for the
 * disk; KVT_EIO: the change may not be durable. */
enum kvt_status kvt_objects_raise(struct kvt_objects *o, const struct kvt_table_ask *ask) KVT_MUST_CHECK;

struct kvt_object_entry {
	const char *bucket, *key; /* as NUL-terminated text; borrowed during the call */
	uint64_t bytes;
	uint32_t tier; /* the fastest tier that has the object */
	uint32_t leases;
};
/* Lists objects of a bucket whose keys are greater than `after` (empty: from the first), in order,
 * at most `most`. Returns how many; *more: there may be more. Objects that only a shared tier has
 * are listed as long as this node remembers having seen them there. */
size_t kvt_objects_list(struct kvt_objects *o, struct kvw_slice bucket, struct kvw_slice after,
	size_t most, void (*visit)(void *user, const struct kvt_object_entry *entry), void *user,
	bool *more);

struct kvt_bucket_entry {
	const char *bucket; /* as NUL-terminated text; borrowed during the call */
	uint64_t objects, bytes;
};
/* Lists all buckets in the order of their names. Returns how many. */
size_t kvt_buckets_list(struct kvt_objects *o,
	void (*visit)(void *user, const struct kvt_bucket_entry *entry), void *user);

struct kvt_objects_stats {
	uint64_t puts, put_bytes, stored, replaced, same, put_aborted, put_refused;
	uint64_t leases, lease_hits, lease_misses, lease_refused, releases, expired;
	uint64_t leases_now, puts_now, oldest_lease_ns;
	uint64_t corrupt;            /* objects found damaged when a lease was asked for */
	uint64_t objects, buckets;   /* numbers of names in the catalog */
	uint64_t unlisted;           /* puts whose name found no room in the catalog */
	int64_t quiet_until_wall_ns; /* 0: writes are allowed */
};
void kvt_objects_stats(struct kvt_objects *o, struct kvt_objects_stats *out);
/* Returns libkvtier's handle, and libkvtier's metrics as text. */
struct kvt *kvt_objects_cache(struct kvt_objects *o);

#endif
