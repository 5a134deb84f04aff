/*
 * pool.h - stores records of one size, found by a hash: tenants and missing parents.
 *
 * A record begins with a struct kvt_pool_node, and keeps its number, which is below `most`, until
 * it is removed. The caller distinguishes records of equal hash. Not thread-safe: guarded by the
 * index's mutex.
 */
#ifndef KVT_POOL_H
#define KVT_POOL_H

#include "policies/policy.h"
#include "index/region.h"

/* Beginning of each record. */
struct kvt_pool_node {
	uint32_t hash;
	uint32_t next; /* next record in the bucket, or in the list of free records */
};

struct kvt_pool {
	struct kvt_region memory;
	uint32_t *heads;  /* first record of each bucket, or KVT_NO_ENTRY */
	uint32_t buckets; /* number of buckets: a power of two, 0 before the first record */
	uint32_t size;    /* bytes of a record */
	uint32_t most;
	uint32_t count; /* in use */
	uint32_t fresh; /* numbers from this one on were never used */
	uint32_t free;  /* first freed number, or KVT_NO_ENTRY */
};

enum kvt_status kvt_pool_init(struct kvt_pool *p, uint32_t most, uint32_t size) KVT_MUST_CHECK;
void kvt_pool_finish(struct kvt_pool *p); /* a zeroed struct is allowed */

static inline void *kvt_pool_at(const struct kvt_pool *p, uint32_t number)
{
	return (char *)p->memory.base + (size_t)number * p->size;
}

/* Return the first record of this hash, and the next one after `number`; KVT_NO_ENTRY: none. */
uint32_t kvt_pool_first(const struct kvt_pool *p, uint32_t hash);
uint32_t kvt_pool_next(const struct kvt_pool *p, uint32_t number);

/* Adds a record, which is zeroed except for its node. KVT_FULL: `most` records are in use;
 * KVT_ENOMEM. */
enum kvt_status kvt_pool_add(struct kvt_pool *p, uint32_t hash, uint32_t *number) KVT_MUST_CHECK;
void kvt_pool_remove(struct kvt_pool *p, uint32_t number);

uint64_t kvt_pool_bytes(const struct kvt_pool *p); /* memory */

#endif
