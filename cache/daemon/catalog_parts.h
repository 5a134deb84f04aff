/*
 * catalog_parts.h - what the catalog's two files share: catalog.c has the names in memory,
 * catalog_file.c the file.
 */
#ifndef KVT_CATALOG_PARTS_H
#define KVT_CATALOG_PARTS_H

#include <pthread.h>

#include "daemon/catalog.h"

#define KVT_CATALOG_LEVELS 16

/* One object's name in its bucket's skip list. After the links follow the key's bytes and a NUL. */
struct kvt_catalog_node {
	uint64_t bytes, stamp;
	uint16_t key_len;
	uint8_t levels;
	struct kvt_catalog_node *next[];
};

struct kvt_catalog_bucket {
	uint64_t objects, bytes;
	struct kvt_catalog_node *first[KVT_CATALOG_LEVELS];
	size_t name_len;
	char name[KVT_BUCKET_MOST + 1];
};

/* Records that are not written yet. */
struct kvt_catalog_tail {
	uint8_t *at;
	size_t len, room;
};

struct kvt_catalog {
	const struct kvt_surroundings *surroundings; /* borrowed */
	uint32_t most;
	uint64_t most_bytes;

	pthread_mutex_t lock;                /* guards the members below */
	struct kvt_catalog_bucket **buckets; /* ordered by name */
	size_t bucket_count, bucket_room;
	uint64_t names, memory, unlisted, stamps, random;
	uint64_t live_bytes; /* length of a file with exactly the present names */
	struct kvt_catalog_tail tail;
	bool incomplete; /* the file lacks changes, so that it must be rewritten */

	/* The members from here on belong to the writing thread; other threads only read
	 * file_bytes, with the lock held. */
	char *path, *new_path; /* NULL: no file */
	int fd, new_fd;        /* -1: none */
	uint64_t file_bytes, new_bytes;
	/* last name written to the new file; empty key: none yet */
	struct kvt_catalog_item *cursor;
	bool failed;                     /* logged once */
	int64_t again_ns; /* after a failed rewrite no other begins before this time */
};

enum kvt_catalog_kind { KVT_NAME_THERE = 1, KVT_NAME_GONE = 2, KVT_NAME_BUCKET_GONE = 3 };

/* --- catalog_file.c --- */

/* Length of a record. */
uint64_t kvt_catalog_record_bytes(size_t bucket_len, size_t key_len);
/* Records a change for the file, if there is one. The lock is held. */
void kvt_catalog_tell(struct kvt_catalog *c, enum kvt_catalog_kind kind, struct kvw_slice bucket,
	struct kvw_slice key, uint64_t bytes);
enum kvt_status kvt_catalog_file_open(
	struct kvt_catalog *c, const char *path, char *why) KVT_MUST_CHECK;
void kvt_catalog_file_close(struct kvt_catalog *c);

#endif
