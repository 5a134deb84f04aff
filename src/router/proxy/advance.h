/*
 * advance.h - one function moves an exchange on, until it has to wait.
 */
#ifndef KVW_ADVANCE_H
#define KVW_ADVANCE_H

#include "proxy/exchange.h"

/* client->in begins with a whole head of head_len bytes: makes an exchange of it and advances that.
 * KVW_ENOMEM: nothing was done. */
enum kvw_err kvw_exchange_begin(struct kvw_client *client, size_t head_len) KVW_MUST_CHECK;

/*
 * Does all that can be done now. To be called when something has happened to the exchange, after
 * that was noted where it belongs: bytes in x->upload.in, flags of a socket, a state, a lost
 * client, a failure of the attempt. The exchange may be ENDED, and its client closed, when this
 * returns; their memory stays until the loop has turned.
 */
void kvw_exchange_advance(struct kvw_exchange *x);

/* Requests that wait for a worker whose probes fail go to another one, if they may, and answers of
 * it that stand still are cut. From the tick while a worker is down. */
void kvw_exchange_fail_over(struct kvw_loop *loop);

/* drain.timeout has passed: what the client has of an answer is all that it gets; without any, it
 * gets 503. */
void kvw_exchange_shut_down(struct kvw_exchange *x);

/* From the tick: exchanges that wait for a worker of their model go on where it has one now, those
 * that came first before others. */
void kvw_exchange_wake(struct kvw_loop *loop);
/* From the tick: those that wait for newer model lists look again whether their model is known,
 * those that wait for the text of /metrics for that. */
void kvw_exchange_unpark(struct kvw_loop *loop);

#endif
