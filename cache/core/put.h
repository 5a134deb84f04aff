/*
 * put.h - puts of programs that are built with this library.
 */
#ifndef KVT_PUT_H
#define KVT_PUT_H

#include <stdbool.h>

#include "kvtier/kvtier.h"

/* A flag of kvt_item: the chunk stays in memory, and no tier below gets it. Of one without blocks. */
#define KVT_ITEM_MEMORY (1u << 31)

/* After KVT_FULL of a put: does the limit of its tenant keep this chunk out of L1, however much room there is? */
bool kvt_put_is_limited(struct kvt *k, const struct kvt_item *item);

/* Commits a reservation of one chunk, which ends. KVT_MISS: the chunk was erased while it was filled. */
enum kvt_status kvt_put_publish(
	struct kvt *k, struct kvt_reservation *r, const struct kvt_checksum *sum) KVT_MUST_CHECK;

#endif
