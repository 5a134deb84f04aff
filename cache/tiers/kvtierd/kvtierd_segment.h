/*
 * kvtierd_segment.h - the daemon's shared memory, as its clients see it: read only, and never trusted.
 *
 * The daemon writes into it while we read; what a lease says may be wrong; the segment may be
 * replaced under the same name. So the name is looked at before every use (about a microsecond),
 * all offsets are checked against the length that the file has now, and bytes are copied out before
 * anything is concluded from them.
 *
 * A name that is gone does not end the use of what is mapped: clients' runtimes remove names (see
 * cache/daemon/segment.h), and daemons put them back. A segment that becomes shorter within a copy
 * ends the process by SIGBUS, as with every mapped file; reading by pread(2) instead would cost a
 * third of the speed. The length is looked at right before each copy.
 *
 * Threads: one.
 */
#ifndef KVT_TIERED_SEGMENT_H
#define KVT_TIERED_SEGMENT_H

#include <sys/types.h>

#include "chunk/checksum.h"
#include "tiers/kvtierd/kvtierd_answer.h"

struct kvtierd_segment {
	char path[300]; /* of the shared memory's file system */
	int fd;         /* -1: not attached */
	void *map;      /* `bytes` long, read only */
	uint64_t bytes;
	dev_t device;
	ino_t inode;
	uint64_t generation;        /* counts attachments; 0: never */
	char why[KVT_REASON_BYTES]; /* after KVT_EIO */
};

/* name: "shared_memory" or "/shared_memory". Attaches nothing yet. KVT_EINVAL: not a name. */
enum kvt_status kvtierd_segment_init(struct kvtierd_segment *g, const char *name) KVT_MUST_CHECK;
void kvtierd_segment_finish(struct kvtierd_segment *g);

/* Attaches what the name means now, if that is not what is attached. KVT_EIO: nothing to attach. */
enum kvt_status kvtierd_segment_refresh(struct kvtierd_segment *g) KVT_MUST_CHECK;

/*
 * Copies `bytes` of the leased object from `from` on into segments, with the checksum of what
 * arrived. To be called after a refresh. KVT_ECORRUPT: the lease goes beyond the segment or is
 * shorter. KVT_ENOMEM.
 */
enum kvt_status kvtierd_segment_take(const struct kvtierd_segment *g,
	const struct kvtierd_lease *lease, uint64_t from, uint64_t bytes,
	const struct kvt_segment *to, size_t to_count, struct kvt_checksum *sum) KVT_MUST_CHECK;

#endif
