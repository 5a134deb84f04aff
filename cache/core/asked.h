/*
 * asked.h - answers requests of other processes to this cache, on the socket in its store's folder.
 */
#ifndef KVT_ASKED_H
#define KVT_ASKED_H

#include "core/core.h"

/* Begins to answer, if there is a store on this machine's disk and the library has threads. A failure is only logged.
 * The handle is open. */
void kvt_asked_start(struct kvt *k);
/* Breaks off answers under way; no request may begin on this handle from now on. */
void kvt_asked_stop(struct kvt *k);

#endif
