/*
 * test_disk.h - a disk in memory that records all actions, and can lose them.
 *
 * A disk holds files in folders; its layer makes kvt_ios for them, several at a time or one after another, like
 * processes that start and end. The disk outlives its kvt_ios.
 *
 * With `record` it keeps every write, sync and change of names, each with the moments at which it began and finished.
 * kvt_disk_after then makes the disk that would be found after the process was killed, or the power was lost, at any of
 * these moments:
 *
 *  - A write is safe if it was reaped before a SYNC of its file was submitted that was itself reaped before the moment.
 *    Any 4 KiB pages of all other writes may be present or not, in any mixture; a page that was written several times
 *    may have any of its versions, whole, never a mixture.
 *  - A length (reserve, truncate) is safe by such a SYNC, or by a sync_folder that returned. All other lengths of one
 *    file are kept up to some point.
 *  - A name (created, renamed, removed) is safe by a sync_folder that returned, by nothing else. Either a first part of
 *    all other names is kept, as on a file system with a journal, or any of them.
 *  - Allocated blocks that were never written read as zeros.
 *
 * After a kill all finished actions are kept, and any pages of those under way.
 *
 * Operations are carried out when they are reaped, in an order that `seed` picks. Reads and writes of a direct file
 * that are not aligned fail with EINVAL. Any thread: a lock around everything.
 */
#ifndef KVT_TEST_DISK_H
#define KVT_TEST_DISK_H

#include "kvtier/kvtier_io.h"
#include "io/testing/test_clock.h"

#define KVT_DISK_PAGE 4096u

struct kvt_disk_options {
	uint64_t capacity;  /* bytes; 0: no limit */
	uint32_t alignment; /* alignment that direct files need; 0: KVT_DISK_PAGE */
	bool record;
	/* seed for the order in which operations finish; 0: the order in which they were
	 * submitted */
	uint64_t seed;
	/* NULL: the machine's clock is used, and a wait takes real time. Otherwise the clock is
	 * borrowed, and a wait moves it. */
	struct kvt_test_clock *clock;
	/* time that operations take, one after another; 0: none */
	uint64_t latency_ns;
	uint64_t bytes_per_second;
};

struct kvt_disk;

enum kvt_status kvt_disk_create(const struct kvt_disk_options *options, struct kvt_disk **out)
	KVT_MUST_CHECK;
/* NULL is allowed; all kvt_ios of the disk must have been destroyed before */
void kvt_disk_destroy(struct kvt_disk *disk);

/* Makes the layer for kvt_config.io; the disk is borrowed. */
struct kvt_io_layer kvt_disk_layer(struct kvt_disk *disk);

/* --- losing
 * ------------------------------------------------------------------------------------- */

enum kvt_disk_end { KVT_DISK_KILL, KVT_DISK_POWER };

/* Returns a number that increases with every action that begins or finishes. */
uint64_t kvt_disk_moment(struct kvt_disk *disk);

/* Makes the disk that would be found after `end` at `moment` (0 to the present one), with an empty
 * record and the same options except `seed`. `disk` is not changed. The same arguments give the
 * same disk. */
enum kvt_status kvt_disk_after(struct kvt_disk *disk, enum kvt_disk_end end, uint64_t moment,
	uint64_t seed, struct kvt_disk **out) KVT_MUST_CHECK;

/* Makes everything durable as it is now, and empties the record. No operation may be under way. */
enum kvt_status kvt_disk_settle(struct kvt_disk *disk) KVT_MUST_CHECK;

/* --- inspection and manipulation
 * ---------------------------------------------------------------- */

/* peek copies bytes of a file as they are now; KVT_MISS: there is no such file, or it is shorter.
 * poke changes them without recording that, like a device on which bits change. */
enum kvt_status kvt_disk_peek(struct kvt_disk *disk, const char *folder, const char *name,
	uint64_t offset, void *out, uint64_t bytes) KVT_MUST_CHECK;
enum kvt_status kvt_disk_poke(struct kvt_disk *disk, const char *folder, const char *name,
	uint64_t offset, const void *from, uint64_t bytes) KVT_MUST_CHECK;

/* Numbers of events since the disk was created. */
struct kvt_disk_stats {
	uint64_t reads, read_bytes, writes, write_bytes, syncs, folder_syncs;
	uint64_t misaligned;         /* operations that were refused because of their alignment */
	uint64_t changed_under_way;  /* writes whose memory was changed before they were reaped */
	uint64_t allocated;          /* bytes now */
	uint64_t files;              /* names now */
};
void kvt_disk_stats(struct kvt_disk *disk, struct kvt_disk_stats *out);

#endif
