/*
 * sim_sidecar.h - llm-d's routing sidecar, as a part of the decoding worker: a request whose field
 * x-prefiller-host-port names another worker is sent there first, with one token to generate, and that
 * worker's parameters become the request's. A prefill that fails is the request's answer, by its status.
 */
#ifndef KVB_SIM_SIDECAR_H
#define KVB_SIM_SIDECAR_H

#include <stdbool.h>

struct kvb_exchange;
struct kvb_request;

/* Begins the prefill by another worker. Returns false if the request names no prefiller. */
bool kvb_sidecar_begin(struct kvb_exchange *x, const struct kvb_request *request);
/* Drops the prefill of an exchange that ends. */
void kvb_sidecar_drop(struct kvb_exchange *x);

#endif
