/*
 * limit.h - whose limit refused a put, for programs that are built with this library.
 */
#ifndef KVT_LIMIT_H
#define KVT_LIMIT_H

#include <stdbool.h>

#include "kvtier/kvtier.h"

/* After KVT_FULL of a put: does the limit of its tenant keep this chunk out of L1, however much room there is? */
bool kvt_put_is_limited(struct kvt *k, const struct kvt_item *item);

#endif
