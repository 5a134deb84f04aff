/*
 * response.h - passes a worker's answer on, from the worker's socket to the client's.
 */
#ifndef KVW_RESPONSE_H
#define KVW_RESPONSE_H

#include "proxy/exchange.h"

/* Reads from the worker's socket, a bounded number of times, and passes the bytes on. Goes to HELD,
 * STREAMING, PAUSED and DONE, or notes that the worker failed. */
void kvw_response_read(struct kvw_exchange *x);

/* Called in state PAUSED: goes on reading if the client has taken enough. */
void kvw_response_resume(struct kvw_exchange *x);

#endif
