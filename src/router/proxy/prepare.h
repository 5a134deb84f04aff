/*
 * prepare.h - gets a prompt's exact tokens before the pick. Used only where loop->sources is set.
 */
#ifndef KVW_PREPARE_H
#define KVW_PREPARE_H

#include "proxy/exchange.h"

/* Asks for the prompt's tokens if the strategy can use them. False: the exchange waits, and `done`
 * is called with the exchange when the answer has arrived. */
bool kvw_prepare_tokens(struct kvw_exchange *x, kvw_token_fn *done);

/* Takes the answer for a waiting exchange, which returns to ROUTING. */
void kvw_prepare_answered(struct kvw_exchange *x, const struct kvw_token_result *result);

/* Handles the answers in the loop's box. */
void kvw_prepare_box(struct kvw_io *io);

#endif
