/*
 * segment.h - the shared memory that clients of kvtierd read: one inode for ever.
 *
 * Clients open the segment by its name and map it for their whole life; many never look again. So
 * the inode must stay the same over restarts of the daemon, and its name must come back when a
 * client's runtime removes it (Python before 3.13 unlinks what it opened when it exits). A second
 * hard link in the same folder, /dev/shm/.NAME.kvtierd, keeps the inode reachable.
 *
 * After a restart clients of the former daemon may still be reading under its leases. Nothing may be
 * written into the segment before the last of these has ended; a side file keeps until when that
 * may be, written before a lease is granted that lasts longer than it says.
 *
 * A foreign file under the segment's name is never touched: while it is there clients may
 * open it in place of ours, and read other bytes under our offsets. kvt_segment_is_ours says so,
 * and no lease may be granted meanwhile.
 *
 * Threads: any, but open and close.
 */
#ifndef KVT_SEGMENT_FILE_H
#define KVT_SEGMENT_FILE_H

#include <stdbool.h>

#include "chunk/note.h"

struct kvt_segment_file;

struct kvt_segment_options {
	const char *name; /* "shared_memory": /dev/shm/shared_memory */
	uint64_t bytes;
	const char *side_path;     /* the side file; its folder exists */
	uint64_t longest_lease_ns; /* grace included */
	uint32_t mode;             /* of the file; 0: 0600 */
	const struct kvt_surroundings *surroundings;
};

/* KVT_ELOCKED: another daemon owns it. KVT_EFORMAT: there is a segment of this name that is not ours
 * or has another size, and clients may still map it; `why` (KVT_REASON_BYTES) has the command that
 * removes it. KVT_EIO, KVT_EINVAL: why says it. */
enum kvt_status kvt_segment_open(const struct kvt_segment_options *options, char *why,
	struct kvt_segment_file **out) KVT_MUST_CHECK;
/* The inode and its second link stay for the next daemon. NULL is allowed. */
void kvt_segment_close(struct kvt_segment_file *s);

/* A path next to the second link, for what lasts as long as the segment does:
 * /dev/shm/.NAME.kvtierd- and `what`. False: it has no room. */
bool kvt_segment_beside(const struct kvt_segment_file *s, const char *what, char *to, size_t room);

int kvt_segment_fd(const struct kvt_segment_file *s); /* for backing "fd:N" */

/* Nothing may be written before this wall time; 0: it is over. */
int64_t kvt_segment_quiet_until(const struct kvt_segment_file *s);
bool kvt_segment_is_quiet(const struct kvt_segment_file *s); /* it is not over */

/* A lease will last until wall_ns: true once the side file says so (it is asked for more than it
 * needs, so that few leases write). False: it could not be written, and the lease must not be
 * granted. */
bool kvt_segment_promise(struct kvt_segment_file *s, int64_t wall_ns);
/* The same for a lease that lasts this long from now on. */
bool kvt_segment_promise_for(struct kvt_segment_file *s, uint64_t ns);
/* At the end, when no promise is made any more: the last lease ends this long from now, 0: there is
 * none. So that the next daemon need not wait for what was asked for beyond. */
void kvt_segment_settle(struct kvt_segment_file *s, uint64_t ns);

/* Gives the name back if it is gone; true: it did. Called often. Where the name means a foreign
 * file, this is logged and counted, and the file is left alone. */
bool kvt_segment_tend(struct kvt_segment_file *s);

/* False: the name means another file now. Costs one stat. */
bool kvt_segment_is_ours(const struct kvt_segment_file *s);

struct kvt_segment_stats {
	uint64_t bytes, relinked, side_writes;
	uint64_t taken; /* times the name was found to mean a foreign file */
	bool foreign;   /* it does now */
	bool nameless;  /* both links are gone: clients that come cannot open it until a restart */
};
void kvt_segment_stats(const struct kvt_segment_file *s, struct kvt_segment_stats *out);

#endif
