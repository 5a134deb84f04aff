/*
 * send.h - the request on its way to a worker.
 */
#ifndef KVW_SEND_H
#define KVW_SEND_H

#include "proxy/exchange.h"

/* Writes what the attempt's connection takes of head and body, a bounded number of times. Goes to SENT
 * when all is written. A worker that closed may have answered before: its answer is read next. */
void kvw_request_send(struct kvw_exchange *x);

#endif
