/*
 * disk_state.h - the parts of a disk in memory: pages, inodes, names, and the record.
 *
 * Callers hold the disk's lock. Functions that allocate return false when they cannot.
 */
#ifndef KVT_DISK_STATE_H
#define KVT_DISK_STATE_H

#include <pthread.h>

#include "io/testing/test_disk.h"

/* Bytes of a file; pages that were never written are NULL and read as zeros. */
struct disk_content {
	uint8_t **pages;
	uint64_t page_count; /* of the array */
	uint64_t length;
	uint64_t allocated; /* bytes allocated, from the beginning on */
};

struct disk_inode {
	uint64_t id; /* the same number in a disk made by kvt_disk_after */
	char *folder;
	struct disk_content now, base; /* base: at the record's beginning */
	uint32_t names, base_names; /* number of its names, now and at the record's beginning */
	uint32_t opens;
	uint32_t events; /* events of the record that name the inode */
	uint32_t number; /* scratch number for kvt_disk_after */
	struct disk_inode *next;
};

struct disk_name {
	char *folder, *name;
	struct disk_inode *inode;
};

struct disk_names {
	struct disk_name *items;
	size_t count, room;
	bool base; /* names at the record's beginning */
};

enum disk_event_kind {
	DISK_WRITE,
	DISK_SYNC,
	DISK_LENGTH,
	DISK_CREATE,
	DISK_RENAME,
	DISK_REMOVE,
	DISK_SYNC_FOLDER,
};

#define DISK_UNFINISHED UINT64_MAX

/* One recorded action. */
struct disk_event {
	enum disk_event_kind kind;
	struct disk_inode *inode; /* NULL: an event of a folder or a name */
	char *folder;             /* of names and folders */
	char *name, *to;
	uint64_t offset; /* DISK_LENGTH: the length */
	uint64_t bytes;  /* DISK_LENGTH: allocated */
	uint8_t *data;   /* DISK_WRITE */
	uint64_t begun, finished;
};

struct disk_log {
	struct disk_event *items;
	size_t count, room;
};

struct disk_io; /* test_disk.c */

struct kvt_disk {
	pthread_mutex_t lock; /* guards all members below */
	pthread_cond_t woken;
	struct kvt_disk_options options;
	struct disk_inode *inodes;
	uint64_t last_id;
	struct disk_names names, base_names;
	struct disk_log log;
	uint64_t moment;
	uint64_t random; /* state of the generator for the order of operations */
	uint64_t busy_until_ns;
	struct disk_io *ios; /* all kvt_ios of the disk */
	struct kvt_disk_stats stats;
};

bool disk_content_write(struct disk_content *c, uint64_t offset, const void *from, uint64_t bytes);
void disk_content_read(
	const struct disk_content *c, uint64_t offset, void *out, uint64_t bytes);
void disk_content_set_length(struct disk_content *c, uint64_t length, uint64_t allocated);
bool disk_content_copy(const struct disk_content *from, struct disk_content *to);
void disk_content_finish(struct disk_content *c);

struct disk_inode *disk_inode_new(struct kvt_disk *disk, const char *folder, uint64_t id);
void disk_inode_let_go(struct kvt_disk *disk, struct disk_inode *inode); /* frees it if unused */

struct disk_inode *disk_names_find(
	const struct disk_names *names, const char *folder, const char *name);
/* Replaces the former inode of the name. */
bool disk_names_set(struct kvt_disk *disk, struct disk_names *names, const char *folder,
	const char *name, struct disk_inode *inode);
bool disk_names_drop(
	struct kvt_disk *disk, struct disk_names *names, const char *folder, const char *name);
void disk_names_finish(struct kvt_disk *disk, struct disk_names *names);

/* Adds an event that begins now; strings are copied, `data` is taken. *index is for
 * disk_log_finish_event; without a record only the moment counts. */
bool disk_log_add(struct kvt_disk *disk, const struct disk_event *event, size_t *index);
void disk_log_finish_event(struct kvt_disk *disk, size_t index);
void disk_log_clear(struct kvt_disk *disk);

/* Like kvt_disk_settle, with the lock held. */
bool disk_settle(struct kvt_disk *disk);

#endif
