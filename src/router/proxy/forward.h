/*
 * forward.h - which worker serves a request: model, owner, strategy, connection.
 */
#ifndef KVW_FORWARD_H
#define KVW_FORWARD_H

#include "proxy/exchange.h"

/* Routes and forwards, also after a worker failed. */
void kvw_request_forward(struct kvw_exchange *x);

/* Opens or takes a connection to the attempt's worker and begins to send. */
void kvw_request_attach(struct kvw_exchange *x, bool fresh);

/* Returns whether a usable worker is left besides the present one and those already tried. */
bool kvw_request_has_choice(const struct kvw_exchange *x);

/* From the tick: parked exchanges look again whether their model is known. */
void kvw_request_unpark(struct kvw_loop *loop);
/* One has waited long enough. */
void kvw_request_park_timeout(struct kvw_exchange *x);

#endif
