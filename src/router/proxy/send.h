/*
 * send.h - the request on its way to a worker.
 */
#ifndef KVW_SEND_H
#define KVW_SEND_H

#include "proxy/exchange.h"

/* Writes what the attempt's connection takes of head and body, a bounded number of times. Goes to SENT
 * when all is written. A worker that closed may have answered before: its answer is read next. */
void kvw_request_send(struct kvw_exchange *x);

/* The whole request is sent: from now on its first token is waited for, at most attempt_ms of it from this
 * worker; 0: as long as timeouts.first_token allows. */
void kvw_request_await_token(struct kvw_exchange *x, int64_t attempt_ms);

#endif
