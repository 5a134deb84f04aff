/*
 * asked.h - what another process asks of this cache, by the socket in its store's folder.
 */
#ifndef KVT_ASKED_H
#define KVT_ASKED_H

#include "core/core.h"

/* Begins to answer, where there is a store on this machine's disk and the library has threads. What cannot be had
 * is logged and done without. The handle is open. */
void kvt_asked_start(struct kvt *k);
/* Breaks off what is under way; nothing may be begun on this handle from now on. */
void kvt_asked_stop(struct kvt *k);

#endif
