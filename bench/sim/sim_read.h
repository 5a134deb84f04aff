/*
 * sim_read.h - reads a generating request, step by step; only for sim_openai.c.
 *
 * Each function fills the exchange, or fills *error and returns false.
 */
#ifndef KVB_SIM_READ_H
#define KVB_SIM_READ_H

#include "bench/sim/sim_openai.h"

/* Reads the id of the answer: the client's, or a random one; it has only characters that need no
 * escaping. */
void kvb_read_id(struct kvb_exchange *x, const struct kvb_request *request);
/* Reads the members that all APIs have, then those of the API. */
bool kvb_read_common(struct kvb_exchange *x, struct kvb_error *error);
/* Returns whether prompts and answers fit the model; shortens an answer if the request names no
 * length. */
bool kvb_read_lengths(struct kvb_exchange *x, struct kvb_error *error);

#endif
