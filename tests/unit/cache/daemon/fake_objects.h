/*
 * fake_objects.h - objects.h and what the server asks of segment.h, in plain memory, and as obedient or
 * as unwilling as a test wants. Every object lies in pieces of FAKE_PIECE bytes.
 */
#ifndef FAKE_OBJECTS_H
#define FAKE_OBJECTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "daemon/objects.h"

#ifndef FAKE_BYTES
#define FAKE_BYTES ((size_t)64 << 20)
#endif
#define FAKE_PIECE   ((size_t)100000)
#define FAKE_OBJECTS 256

struct fake_object {
	char bucket[KVT_BUCKET_MOST + 1], key[KVT_OBJECT_KEY_MOST + 1];
	struct kvt_segment *pieces; /* [count], owned; NULL: a free slot */
	uint32_t count;
	uint64_t bytes;
	struct kvt_checksum sum;
};

struct kvt_objects {
	pthread_mutex_t lock;
	char *memory;
	size_t used; /* nothing is ever given back */
	struct fake_object objects[FAKE_OBJECTS];
	uint64_t next_lease;
	uint64_t leased[1024]; /* ids of live ones */
	size_t leased_count;
	size_t puts_now;
	struct kvt_objects_stats stats;

	/* What a test wants. */
	bool last_named; /* of the last put or erase of a bucket, and its tenant */
	struct kvt_tenant last_tenant;
	_Atomic uint32_t last_slot; /* of the last change of generations */
	_Atomic int begin_status, end_status, lease_status, erase_status; /* enum kvt_status; 0: as it is */
	_Atomic bool limited; /* what is refused with KVT_FULL is so for its tenant's limit */
	_Atomic uint64_t lease_delay_ns; /* answered so much later, by another thread */
	_Atomic int64_t quiet_until;
	_Atomic uint64_t last_ttl_ns, last_timeout_ns;
	_Atomic uint64_t erase_delay_ns;
};

struct kvt_objects *fake_create(void);
void fake_destroy(struct kvt_objects *o); /* nothing may be left under way */
size_t fake_leases(struct kvt_objects *o);
size_t fake_puts(struct kvt_objects *o);
uint64_t fake_granted(struct kvt_objects *o); /* leases, ever */
/* Does the memory at an offset hold these bytes? */
bool fake_holds(struct kvt_objects *o, uint64_t offset, const char *bytes, size_t len);
/* It is the segment, too. */
struct kvt_segment_file *fake_segment(struct kvt_objects *o);

#endif
