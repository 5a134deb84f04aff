/*
 * send.h - the request on its way to a worker.
 */
#ifndef KVW_SEND_H
#define KVW_SEND_H

#include "fleet/link.h"
#include "proxy/exchange.h"

/* Takes an idle connection, unless it is to be a fresh one, or makes a new one: to CONNECTING or
 * SENDING. Otherwise the attempt has failed, or the client has its answer. on_link: on each
 * event of it. */
void kvw_connect(struct kvw_exchange *x, bool fresh, kvw_link_fn on_link);

/* Writes what the attempt's connection takes of head and body, a bounded number of times. Goes to
 * SENT when all is written. A worker that closed may have answered before: its answer is read
 * next. */
void kvw_request_send(struct kvw_exchange *x);

/* The whole request is sent: from now on its first token is waited for, at most attempt_ms of it
 * from this worker; 0: as long as timeouts.first_token allows. */
void kvw_request_await_token(struct kvw_exchange *x, int64_t attempt_ms);

#endif
