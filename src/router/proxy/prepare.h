/*
 * prepare.h - a prompt's exact tokens before the pick; only where loop->sources is set.
 */
#ifndef KVW_PREPARE_H
#define KVW_PREPARE_H

#include "proxy/exchange.h"

/* Asks for the prompt's tokens if the strategy can use them. False: the answer is awaited;
 * kvw_request_forward is called when it has come or the time for it has passed. */
bool kvw_prepare_tokens(struct kvw_exchange *x);

/* Before a pick: adds the prompt's names to x->route. */
void kvw_prepare_route(struct kvw_exchange *x);

/* After it: reports to the sources where the prompt went. */
void kvw_prepare_picked(struct kvw_exchange *x);

void kvw_prepare_timeout(struct kvw_exchange *x);

/* The exchange ends and no longer waits for tokens. */
void kvw_prepare_cancel(struct kvw_exchange *x);

/* The loop's box has answers. */
void kvw_prepare_box(struct kvw_io *io);

#endif
