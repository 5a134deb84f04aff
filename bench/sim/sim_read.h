/*
 * sim_read.h - the steps of reading a generating request, for sim_openai.c only.
 *
 * Each fills the exchange, or fills *error and returns false.
 */
#ifndef KVB_SIM_READ_H
#define KVB_SIM_READ_H

#include "bench/sim/sim_openai.h"

/* The id of the answer: the client's, or a random one; only characters that need no escaping. */
void kvb_read_id(struct kvb_exchange *x, const struct kvb_request *request);
/* What all APIs have in common, then what is the API's own. */
bool kvb_read_common(struct kvb_exchange *x, struct kvb_error *error);
/* Returns whether prompts and answers fit the model; shortens an answer if the request names no
 * length. */
bool kvb_read_lengths(struct kvb_exchange *x, struct kvb_error *error);

#endif
