/*
 * catalog.h - the names of stored objects, for lists of objects.
 *
 * libkvtier knows objects only by the hash of their names; the catalog keeps the names in order,
 * bounded in number and memory, and saves them in a file for the time after a restart. The catalog
 * may name objects that are gone, since evictions are not reported to it, and lack names if a bound
 * was reached or the process was killed; only lists depend on it. Thread-safe: it has its own lock.
 * Only kvt_catalog_step writes the file.
 */
#ifndef KVT_CATALOG_H
#define KVT_CATALOG_H

#include "daemon/objects.h"

#define KVT_CATALOG_BUCKETS 4096

struct kvt_catalog_options {
	const char *path;                            /* the catalog's file; NULL: only in memory */
	uint32_t most;                               /* names */
	uint64_t most_bytes;                         /* limit of the memory for names */
	const struct kvt_surroundings *surroundings; /* borrowed until destroy */
};

struct kvt_catalog;

/* Makes a catalog, and reads the file up to its first incomplete record. KVT_ELOCKED: another
 * process has the file; KVT_EFORMAT: the file is not a catalog; KVT_EIO, KVT_ENOMEM. why: room for
 * KVT_REASON_BYTES. */
enum kvt_status kvt_catalog_create(const struct kvt_catalog_options *options, char *why,
	struct kvt_catalog **out) KVT_MUST_CHECK;
void kvt_catalog_destroy(struct kvt_catalog *c); /* writes unwritten changes; NULL is allowed */

/* Notes that an object is stored, and its length. */
void kvt_catalog_note(struct kvt_catalog *c, const struct kvt_object_name *name, uint64_t bytes);
void kvt_catalog_forget(struct kvt_catalog *c, const struct kvt_object_name *name);
void kvt_catalog_forget_bucket(struct kvt_catalog *c, struct kvw_slice bucket);

/* One name, copied. */
struct kvt_catalog_item {
	uint64_t bytes;
	uint64_t stamp; /* changes each time that the name is noted */
	char bucket[KVT_BUCKET_MOST + 1], key[KVT_OBJECT_KEY_MOST + 1];
};
/* Forgets the name unless it was noted again since the item was copied. */
void kvt_catalog_forget_item(struct kvt_catalog *c, const struct kvt_catalog_item *item);

/* Copies up to n items of a bucket whose keys come after `after` (empty: from the first key). */
size_t kvt_catalog_page(struct kvt_catalog *c, struct kvw_slice bucket, struct kvw_slice after,
	struct kvt_catalog_item *items, size_t n);
/* Copies items of all buckets that come after `after` (NULL: from the first item). */
size_t kvt_catalog_walk(struct kvt_catalog *c, const struct kvt_catalog_item *after,
	struct kvt_catalog_item *items, size_t n);
/* Calls visit for all buckets in order, with the lock held: visit must not call the catalog. */
size_t kvt_catalog_buckets(struct kvt_catalog *c,
	void (*visit)(void *user, const struct kvt_bucket_entry *entry), void *user);

/* Writes new changes, or the next part of a rewritten file; true: more is left to write. Always
 * called by the same thread. */
bool kvt_catalog_step(struct kvt_catalog *c);

struct kvt_catalog_stats {
	uint64_t names, buckets;
	uint64_t memory_bytes, file_bytes;
	uint64_t unlisted; /* names that were not kept because of a limit */
};
void kvt_catalog_stats(struct kvt_catalog *c, struct kvt_catalog_stats *out);

#endif
