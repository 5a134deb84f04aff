/*
 * kept.h - was what a request was promised kept?
 *
 * Threads: an event loop's own.
 */
#ifndef KVW_KEPT_H
#define KVW_KEPT_H

#include "proxy/exchange.h"

/* Counts the promise of a request that ends, and how well its time to first token was predicted. */
void kvw_kept_count(struct kvw_exchange *x, enum kvw_end end);

#endif
