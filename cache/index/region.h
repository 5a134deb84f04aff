/*
 * region.h - memory that grows in place and never moves.
 *
 * A region reserves address space for its limit once, and makes pages usable in steps on request,
 * so that a large limit costs nothing until it is used. Addresses stay valid, and readable, until
 * kvt_region_finish: a reader without a lock may read memory that its owner has long reused. Large
 * steps ask for huge pages. Not thread-safe: the owner has a lock.
 */
#ifndef KVT_REGION_H
#define KVT_REGION_H

#include <stddef.h>

#include "kvtier/kvtier.h"

struct kvt_region {
	void *base;      /* owned; all zero when first used */
	size_t usable;   /* bytes from `base` on that are accessible */
	size_t reserved; /* bytes of address space from `base` on */
	void *mapped;    /* address to pass to munmap */
	size_t mapped_bytes;
};

/* Reserves the region; nothing is usable yet. KVT_ENOMEM. */
enum kvt_status kvt_region_init(struct kvt_region *r, size_t bytes) KVT_MUST_CHECK;
/* Makes at least the first `bytes` usable, up to the size given to init. KVT_ENOMEM: nothing
 * changed. */
enum kvt_status kvt_region_grow(struct kvt_region *r, size_t bytes) KVT_MUST_CHECK;
/* Gives the pages back to the kernel. The addresses stay readable and then read as zero. */
void kvt_region_clear(struct kvt_region *r);
void kvt_region_finish(struct kvt_region *r); /* a zeroed struct is allowed */

#endif
