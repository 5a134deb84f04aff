/*
 * send.h - sends a request to a worker: connects, and writes head and body.
 */
#ifndef KVW_SEND_H
#define KVW_SEND_H

#include "fleet/link.h"
#include "proxy/exchange.h"

/* Takes an idle connection, unless `fresh`, or makes a new one, and goes to CONNECTING or SENDING.
 * Otherwise notes the attempt's failure, or has answered the client. on_link: called on each event
 * of the connection. */
void kvw_connect(struct kvw_exchange *x, bool fresh, kvw_link_fn on_link);

/* Writes as much of head and body as the attempt's connection takes, a bounded number of times.
 * Goes to SENT when all is written. A worker that closed may have answered before: its answer is
 * read next. */
void kvw_request_send(struct kvw_exchange *x);

/* Called when the whole request was sent: begins the wait for its first token, for at most
 * attempt_ms at this worker; 0: only timeouts.first_token limits the wait. */
void kvw_request_await_token(struct kvw_exchange *x, int64_t attempt_ms);

#endif
