/*
 * region.h - memory that grows in place and never moves.
 *
 * Address space for the most that may ever be needed is reserved once; pages are made usable in
 * steps as they are asked for, so that a large limit costs nothing until it is used. Addresses stay
 * valid, and readable, until kvt_region_finish: a reader without a lock may look at memory that
 * its owner has long used for something else. Huge pages are asked for where steps are large enough.
 * Not thread-safe: the owner has a lock.
 */
#ifndef KVT_REGION_H
#define KVT_REGION_H

#include <stddef.h>

#include "kvtier/kvtier.h"

struct kvt_region {
	void *base;      /* owned; all zero when first used */
	size_t usable;   /* bytes from base on that may be touched */
	size_t reserved; /* bytes of address space at base */
	void *mapped;    /* the address for munmap */
	size_t mapped_bytes;
};

/* Nothing is usable yet. KVT_ENOMEM. */
enum kvt_status kvt_region_init(struct kvt_region *r, size_t bytes) KVT_MUST_CHECK;
/* Makes at least the first `bytes` usable; at most what init was given. KVT_ENOMEM: nothing changed. */
enum kvt_status kvt_region_grow(struct kvt_region *r, size_t bytes) KVT_MUST_CHECK;
/* Gives the pages back to the machine. The addresses stay readable and read as zero from now on. */
void kvt_region_clear(struct kvt_region *r);
void kvt_region_finish(struct kvt_region *r); /* a zeroed struct is allowed */

#endif
