/*
 * kvtierd_segment.h - the daemon's shared memory on the client's side: read only, and never
 * trusted.
 *
 * The daemon writes into the segment while clients read; a lease may be wrong; another segment may
 * take the same name. So the client checks the name before every use (about a microsecond), checks
 * all offsets against the file's present length, and copies bytes out before it draws conclusions
 * from them.
 *
 * A removed name does not end the use of the mapping: clients' runtimes remove names (see
 * cache/daemon/segment.h), and daemons restore them. A segment that becomes shorter during a copy
 * ends the process by SIGBUS, like every mapped file; reads by pread(2) instead would cost a third
 * of the speed. The client checks the length right before each copy.
 *
 * Only one thread may use a struct kvtierd_segment.
 */
#ifndef KVT_TIERED_SEGMENT_H
#define KVT_TIERED_SEGMENT_H

#include <sys/types.h>

#include "chunk/checksum.h"
#include "tiers/kvtierd/kvtierd_answer.h"

struct kvtierd_segment {
	char path[300]; /* path in the file system of shared memory */
	int fd;         /* -1: not attached */
	void *map;      /* the mapping, `bytes` long, read only */
	uint64_t bytes;
	dev_t device;
	ino_t inode;
	uint64_t generation;        /* number of times that a segment was attached; 0: never */
	char why[KVT_REASON_BYTES]; /* after KVT_EIO */
};

/* The name has the form "shared_memory" or "/shared_memory". Attaches nothing yet. KVT_EINVAL: the
 * name is not of this form. */
enum kvt_status kvtierd_segment_init(struct kvtierd_segment *g, const char *name) KVT_MUST_CHECK;
void kvtierd_segment_finish(struct kvtierd_segment *g);

/* Attaches the segment that has the name now, unless it is attached already. KVT_EIO: there is
 * none, or it cannot be mapped. */
enum kvt_status kvtierd_segment_refresh(struct kvtierd_segment *g) KVT_MUST_CHECK;

/*
 * Copies `bytes` of the leased object, from byte `from` on, into segments, and computes the
 * checksum of the copied bytes. To be called after a refresh. KVT_ECORRUPT: the lease reaches
 * beyond the segment, or is shorter than that. KVT_ENOMEM.
 */
enum kvt_status kvtierd_segment_take(const struct kvtierd_segment *g,
	const struct kvtierd_lease *lease, uint64_t from, uint64_t bytes,
	const struct kvt_segment *to, size_t to_count, struct kvt_checksum *sum) KVT_MUST_CHECK;

#endif
