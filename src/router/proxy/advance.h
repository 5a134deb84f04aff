/*
 * advance.h - one function moves an exchange on, until the exchange has to wait.
 */
#ifndef KVW_ADVANCE_H
#define KVW_ADVANCE_H

#include "proxy/exchange.h"

/* Makes an exchange of the head of head_len bytes at the beginning of client->in and advances the
 * exchange. KVW_ENOMEM: nothing was done. */
enum kvw_err kvw_exchange_begin(struct kvw_client *client, size_t head_len) KVW_MUST_CHECK;

/*
 * Takes all steps that are possible now. Callers first note the event where it belongs: bytes in
 * x->upload.in, flags of a socket, a state, a lost client, a failure of the attempt. The exchange
 * may be ENDED, and its client closed, when this returns; their memory stays until the loop has
 * turned.
 */
void kvw_exchange_advance(struct kvw_exchange *x);

/* Moves requests that wait for a worker whose probes fail to another worker, if they may, and cuts
 * answers of that worker that stand still. The tick calls this while a worker is down. */
void kvw_exchange_fail_over(struct kvw_loop *loop);

/* Ends an exchange after drain.timeout: a client that has a part of an answer gets no more; any
 * other client gets 503. */
void kvw_exchange_shut_down(struct kvw_exchange *x);

/* Called by the tick: moves on exchanges that wait for a worker of their model and have one now, in
 * order of arrival. */
void kvw_exchange_wake(struct kvw_loop *loop);
/* Called by the tick: checks again exchanges that wait for newer model lists or for the text of
 * /metrics. */
void kvw_exchange_unpark(struct kvw_loop *loop);

#endif
