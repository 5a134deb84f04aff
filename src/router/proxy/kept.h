/*
 * kept.h - judges whether the promise to a request was kept.
 *
 * Threads: an event loop's own.
 */
#ifndef KVW_KEPT_H
#define KVW_KEPT_H

#include "proxy/exchange.h"

/* Counts the promise to a request that ends, and the error of its predicted time to first token. */
void kvw_kept_count(struct kvw_exchange *x, enum kvw_end end);

#endif
