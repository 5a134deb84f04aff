/*
 * objects.h - the objects of kvtierd: buckets and keys over one libkvtier, and leases on them.
 *
 * An object is a run of bytes under a bucket and a key, both as a client gave them, decoded. It is
 * kept as a chunk of libkvtier, whose L1 lies in the daemon's segment; below L1 are the tiers that
 * the configuration names. Its storage key is a hash of bucket, key and generations (objects_names.c). Its tenant, whose
 * limits count for it, is the one that its client names; the bucket where it names none, where the bucket
 * has limits of its own, and above a shared tier, where others put what an erase has to reach. Objects
 * have no parents.
 *
 * Leases: offsets of an object's bytes in the segment, which stay as they are until the lease is
 * released or its time and a grace are over. Bytes are checked before a lease is granted, since
 * clients map the segment writable.
 *
 * Replacing: an object whose bytes differ is replaced; the old bytes live until their leases end. Where a tier below
 * may have them, the change is durable before the put is over.
 *
 * Threads: any. `done` is called on the objects' own thread, or inside the call.
 */
#ifndef KVT_OBJECTS_H
#define KVT_OBJECTS_H

#include "kvway/slice.h"
#include "chunk/slots.h"
#include "daemon/segment.h"

#define KVT_LEASE_ID_BYTES  33 /* URL-safe text with its NUL; cannot be guessed */
#define KVT_BUCKET_MOST     128
#define KVT_OBJECT_KEY_MOST 1024

struct kvt_objects;

struct kvt_bucket_limit {
	const char *bucket;
	uint64_t memory_bytes, nvme_bytes; /* 0: none */
};

struct kvt_objects_options {
	const struct kvt_config *cache;   /* l1_backing and l1_capacity are the segment's */
	struct kvt_segment_file *segment; /* until destroy */
	const struct kvt_surroundings *surroundings;
	uint64_t lease_ttl_max_ns; /* longer ones are cut to it */
	uint64_t lease_grace_ns;   /* kept beyond the TTL */
	uint32_t leases_max;       /* at once */
	uint64_t object_max_bytes;
	uint64_t memory_only_bytes; /* objects up to this size stay in memory */
	const char *catalog_path; /* names of objects, for lists after a restart; NULL: none */
	const char *generations_path; /* NULL: next to the segment */
	const struct kvt_bucket_limit *limits;
	size_t limit_count;
};

enum kvt_status kvt_objects_create(const struct kvt_objects_options *options, char *why,
	struct kvt_objects **out) KVT_MUST_CHECK;
void kvt_objects_destroy(struct kvt_objects *o); /* no put and no lease call is under way */

struct kvt_object_name {
	struct kvw_slice bucket, key; /* not empty, within the limits above, else KVT_EINVAL */
};

/* --- put --- */

struct kvt_object_put; /* room in the segment that is being filled */

/* KVT_FULL: no room; KVT_BUSY: the segment must not be written yet (after a restart) or too many are
 * under way; KVT_EINVAL: name or size. tenant: as the client named it; NULL: it did
 * not. Segments are borrowed until end or abort. */
enum kvt_status kvt_object_put_begin(struct kvt_objects *o, const struct kvt_object_name *name,
	const struct kvt_tenant *tenant, uint64_t bytes, struct kvt_object_put **out, const struct kvt_segment **segments,
	uint32_t *count) KVT_MUST_CHECK;

/* After KVT_FULL of begin: is it the limit of its tenant that keeps such an object out, and not the segment? */
bool kvt_object_is_limited(struct kvt_objects *o, const struct kvt_object_name *name,
	const struct kvt_tenant *tenant, uint64_t bytes);

enum kvt_put_outcome {
	KVT_PUT_STORED,
	KVT_PUT_REPLACED,
	KVT_PUT_SAME,
	KVT_PUT_LIMITED, /* with KVT_FULL: the limit of its tenant kept it out */
};

/* All bytes are in place; sum is theirs (kvt_checksum_*, made while they came in). Takes the put.
 * KVT_FULL, KVT_BUSY: not stored. *outcome is set with KVT_OK, and with KVT_FULL as said above. KVT_MISS: it takes the
 * place of another object, for which the disk or the shared tier is waited for, and wait is false; the put stays the
 * caller's: to be called again where it may wait, for about a second. */
enum kvt_status kvt_object_put_end(struct kvt_objects *o, struct kvt_object_put *put,
	const struct kvt_checksum *sum, bool wait, enum kvt_put_outcome *outcome) KVT_MUST_CHECK;
void kvt_object_put_abort(struct kvt_objects *o, struct kvt_object_put *put);

/* --- leases --- */

struct kvt_grant {
	char id[KVT_LEASE_ID_BYTES];
	const struct kvt_segment
		*fragments; /* arena_offset and bytes count; borrowed during done */
	uint32_t count;
	uint64_t bytes;
};

/* status KVT_OK: granted; KVT_MISS: not there; KVT_ECANCELED: not now, it may be there (it did not come within timeout_ns,
 * there is no room to bring it up, the tier that may have it is left alone for a while or did not answer, or the segment
 * must not be written yet); KVT_BUSY: too many leases. */
typedef void (*kvt_lease_done_fn)(
	void *user, enum kvt_status status, const struct kvt_grant *grant);

struct kvt_lease_wish {
	uint64_t timeout_ns; /* that a tier below may take to bring it */
	uint64_t ttl_ns;
	bool unchecked; /* the client proves the bytes itself after it has copied them; else all are read first */
};

/* Calls done exactly once. */
void kvt_object_lease(struct kvt_objects *o, const struct kvt_object_name *name,
	const struct kvt_lease_wish *wish, kvt_lease_done_fn done, void *user);

/* KVT_MISS: no such lease (any more). */
enum kvt_status kvt_object_release(struct kvt_objects *o, struct kvw_slice id) KVT_MUST_CHECK;

/* --- administration --- */

/* KVT_MISS: not there. Durable when it returns, which may take a second; KVT_EIO: nothing is promised. */
enum kvt_status kvt_object_erase(
	struct kvt_objects *o, const struct kvt_object_name *name) KVT_MUST_CHECK;
/* tenant NULL: all that is in the bucket, and engines of libkvtier lose all that they stored here, in any bucket. Else what
 * the tenant has, wherever. KVT_EIO, KVT_BUSY: not known to be durable. */
enum kvt_status kvt_bucket_erase(struct kvt_objects *o, struct kvw_slice bucket,
	const struct kvt_tenant *tenant, size_t *erased) KVT_MUST_CHECK;

/* The generations of engines of libkvtier that use this daemon (generations.h). KVT_BUSY: not known yet. */
enum kvt_status kvt_objects_table(struct kvt_objects *o, struct kvt_table_ask *ask) KVT_MUST_CHECK;
/* An engine erased: ask->raise gets another generation; what ask->tenant (NULL: none) has here leaves at once, leased
 * objects with their lease. May wait for the disk; KVT_EIO: not known to be durable. */
enum kvt_status kvt_objects_raise(struct kvt_objects *o, const struct kvt_table_ask *ask) KVT_MUST_CHECK;

struct kvt_object_entry {
	const char *bucket, *key; /* as text; borrowed during the call */
	uint64_t bytes;
	uint32_t tier; /* the fastest that has it */
	uint32_t leases;
};
/* Objects of a bucket whose key is greater than `after` (empty: from the first), in order, at most
 * `most`. Returns how many; *more: there may be more. What only a shared tier has is listed as long
 * as this node remembers having seen it there. */
size_t kvt_objects_list(struct kvt_objects *o, struct kvw_slice bucket, struct kvw_slice after,
	size_t most, void (*visit)(void *user, const struct kvt_object_entry *entry), void *user,
	bool *more);

struct kvt_bucket_entry {
	const char *bucket; /* as text; borrowed during the call */
	uint64_t objects, bytes;
};
/* All buckets, in the order of their names. Returns how many. */
size_t kvt_buckets_list(struct kvt_objects *o,
	void (*visit)(void *user, const struct kvt_bucket_entry *entry), void *user);

struct kvt_objects_stats {
	uint64_t puts, put_bytes, stored, replaced, same, put_aborted, put_refused;
	uint64_t leases, lease_hits, lease_misses, lease_refused, releases, expired;
	uint64_t leases_now, puts_now, oldest_lease_ns;
	uint64_t corrupt;            /* found wrong when a lease was asked for */
	uint64_t objects, buckets;   /* as lists know them */
	uint64_t unlisted;           /* puts whose name found no room there */
	int64_t quiet_until_wall_ns; /* 0: writes are allowed */
};
void kvt_objects_stats(struct kvt_objects *o, struct kvt_objects_stats *out);
/* libkvtier's own, and its metrics text. */
struct kvt *kvt_objects_cache(struct kvt_objects *o);

#endif
