/*
 * put.h - puts of programs that are built with this library.
 */
#ifndef KVT_PUT_H
#define KVT_PUT_H

#include <stdbool.h>

#include "kvtier/kvtier.h"

/* A flag of kvt_item: the chunk stays in memory, and no lower tier gets it. Only for items without
 * blocks. */
#define KVT_ITEM_MEMORY (1u << 31)

/* After a put that returned KVT_FULL: returns whether the limit of the chunk's tenant keeps the
 * chunk out of L1, however much room there is. */
bool kvt_put_is_limited(struct kvt *k, const struct kvt_item *item);

/* Commits and ends a reservation of one chunk. KVT_MISS: the chunk was erased while it was
 * filled. */
enum kvt_status kvt_put_publish(
	struct kvt *k, struct kvt_reservation *r, const struct kvt_checksum *sum) KVT_MUST_CHECK;

#endif
