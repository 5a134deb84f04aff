/*
 * disk_state.h - the parts of a disk in memory: pages, inodes, names, and the record.
 *
 * Callers hold the disk's lock. Functions that allocate return false when they cannot.
 */
#ifndef KVT_DISK_STATE_H
#define KVT_DISK_STATE_H

#include <pthread.h>

#include "io/testing/test_disk.h"

/* The contents of a file. Pages that were never written are NULL, and read as zeros. */
struct disk_content {
	uint8_t **pages;
	uint64_t page_count; /* of the array */
	uint64_t length;
	uint64_t allocated; /* number of allocated bytes, from the beginning of the file */
};

struct disk_inode {
	uint64_t id; /* the inode has the same number in a disk that kvt_disk_after makes */
	char *folder;
	struct disk_content now, base; /* contents now, and when the record began (base) */
	/* number of names that the inode has now, and had when the record began */
	uint32_t names, base_names;
	uint32_t opens;
	uint32_t events; /* number of events in the record that are about this inode */
	uint32_t number; /* a number that only kvt_disk_after uses */
	struct disk_inode *next;
};

struct disk_name {
	char *folder, *name;
	struct disk_inode *inode;
};

struct disk_names {
	struct disk_name *items;
	size_t count, room;
	bool base; /* true for the names when the record began */
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
	struct disk_inode *inode; /* NULL: the event is about a folder or a name */
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
	uint64_t random; /* state of the generator by which the order of operations is chosen */
	uint64_t busy_until_ns;
	struct disk_io *ios; /* list of all kvt_ios on the disk */
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
/* Makes the name refer to this inode, in place of a former one. */
bool disk_names_set(struct kvt_disk *disk, struct disk_names *names, const char *folder,
	const char *name, struct disk_inode *inode);
bool disk_names_drop(
	struct kvt_disk *disk, struct disk_names *names, const char *folder, const char *name);
void disk_names_finish(struct kvt_disk *disk, struct disk_names *names);

/* Adds an event that begins now. Texts are copied, `data` is taken over. *index is for
 * disk_log_finish_event. Without a record, the call only counts a moment. */
bool disk_log_add(struct kvt_disk *disk, const struct disk_event *event, size_t *index);
void disk_log_finish_event(struct kvt_disk *disk, size_t index);
void disk_log_clear(struct kvt_disk *disk);

/* Like kvt_disk_settle; the caller holds the lock. */
bool disk_settle(struct kvt_disk *disk);

#endif
