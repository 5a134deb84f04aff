/*
 * asked.h - answers requests of other processes to this cache, on the socket in its store's folder.
 */
#ifndef KVT_ASKED_H
#define KVT_ASKED_H

#include "core/core.h"

/* Begins to answer requests, if the cache has a store on a local disk and threads of its own. A
 * failure is only logged. The handle must be open. */
void kvt_asked_start(struct kvt *k);
/* Breaks off answers under way; afterwards no request may begin on this handle. */
void kvt_asked_stop(struct kvt *k);

#endif
