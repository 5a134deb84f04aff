/*
 * send.h - the request on its way to a worker, and what happens when it does not get there.
 */
#ifndef KVW_SEND_H
#define KVW_SEND_H

#include "proxy/exchange.h"

void kvw_request_send(struct kvw_exchange *x);

/* The worker failed: before the first token the request goes elsewhere or is answered 502 or 504; after
 * it the answer is cut. `why` need not outlive the call. */
void kvw_request_worker_failed(struct kvw_exchange *x, const char *why, bool timed_out);

/* Callbacks: of the attempt's connection, and of the exchange's timer. */
void kvw_request_link_event(struct kvw_link *link, void *user);
void kvw_request_timeout(struct kvw_timer *timer, int64_t now_ns);

#endif
