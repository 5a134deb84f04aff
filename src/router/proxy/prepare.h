/*
 * prepare.h - a prompt's exact tokens before the pick; only where loop->sources is set.
 */
#ifndef KVW_PREPARE_H
#define KVW_PREPARE_H

#include "proxy/exchange.h"

/* Asks for the prompt's tokens if the strategy can use them. False: the exchange waits, and done
 * is called with it when the answer is here. */
bool kvw_prepare_tokens(struct kvw_exchange *x, kvw_token_fn *done);

/* It waits, and the answer is here. Back to ROUTING. */
void kvw_prepare_answered(struct kvw_exchange *x, const struct kvw_token_result *result);

/* The loop's box has answers. */
void kvw_prepare_box(struct kvw_io *io);

#endif
