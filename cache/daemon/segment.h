/*
 * segment.h - the shared memory that clients of kvtierd read: one inode over all restarts.
 *
 * Clients open the segment by its name and map it for their whole life; many never check it again.
 * So the inode must stay the same over restarts of the daemon, and its name must come back when a
 * client's runtime removes it (Python before 3.13 unlinks opened segments at its exit). A second
 * hard link in the same folder, /dev/shm/.NAME.kvtierd, keeps the inode reachable.
 *
 * After a restart clients of the former daemon may still be reading under its leases. No daemon may
 * write into the segment before the last of these has ended; a side file has the latest possible
 * end, and is written before a longer lease is granted.
 *
 * The daemon never touches a foreign file under the segment's name: clients may open that file in
 * place of the segment, and read other bytes at the leases' offsets. kvt_segment_is_ours then
 * returns false, and no lease may be granted meanwhile.
 *
 * Threads: any, except for open and close.
 */
#ifndef KVT_SEGMENT_FILE_H
#define KVT_SEGMENT_FILE_H

#include <stdbool.h>

#include "chunk/note.h"

struct kvt_segment_file;

struct kvt_segment_options {
	const char *name; /* "shared_memory" stands for /dev/shm/shared_memory */
	uint64_t bytes;
	const char *side_path;     /* the side file; its folder must exist */
	uint64_t longest_lease_ns; /* grace included */
	uint32_t mode;             /* mode of the file; 0: 0600 */
	const struct kvt_surroundings *surroundings;
};

/* KVT_ELOCKED: another daemon owns it. KVT_EFORMAT: a segment of this name is foreign or has
 * another size, and clients may still map it; `why` (KVT_REASON_BYTES) has the command that removes
 * it. KVT_EIO, KVT_EINVAL: `why` has the cause. */
enum kvt_status kvt_segment_open(const struct kvt_segment_options *options, char *why,
	struct kvt_segment_file **out) KVT_MUST_CHECK;
/* Closes the segment; inode and second link stay for the next daemon. NULL is allowed. */
void kvt_segment_close(struct kvt_segment_file *s);

/* A path next to the second link, for files that last as long as the segment:
 * /dev/shm/.NAME.kvtierd- and `what`. False: too little room. */
bool kvt_segment_beside(const struct kvt_segment_file *s, const char *what, char *to, size_t room);

int kvt_segment_fd(const struct kvt_segment_file *s); /* for backing "fd:N" */

/* Returns the wall time before which nothing may be written; 0: that time is over. */
int64_t kvt_segment_quiet_until(const struct kvt_segment_file *s);
/* returns whether that time is not over */
bool kvt_segment_is_quiet(const struct kvt_segment_file *s);

/* Promises a lease until wall_ns. True: the side file covers it (the file promises more than
 * needed, so that few leases need a write). False: the write failed, and the lease must not be
 * granted. */
bool kvt_segment_promise(struct kvt_segment_file *s, int64_t wall_ns);
/* Promises a lease that lasts this long from now on. */
bool kvt_segment_promise_for(struct kvt_segment_file *s, uint64_t ns);
/* Called at the end, after the last promise: the last lease ends this long from now; 0: there is no
 * lease. So the next daemon need not wait for the surplus of the promise. */
void kvt_segment_settle(struct kvt_segment_file *s, uint64_t ns);

/* Restores a missing name; returns whether it did. Called often. A foreign file under the name is
 * logged and counted, but not changed. */
bool kvt_segment_tend(struct kvt_segment_file *s);

/* Returns false if the name belongs to another file now. Costs one stat. */
bool kvt_segment_is_ours(const struct kvt_segment_file *s);

struct kvt_segment_stats {
	uint64_t bytes, relinked, side_writes;
	uint64_t taken; /* how often the name was found to belong to a foreign file */
	bool foreign;   /* it does now */
	/* both links are gone: new clients cannot open the segment until a restart */
	bool nameless;
};
void kvt_segment_stats(const struct kvt_segment_file *s, struct kvt_segment_stats *out);

#endif
