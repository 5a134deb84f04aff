/*
 * predicted.h - counts what is predicted of requests when kvway decides about them, for the signal
 * by which fleets are scaled (admission/scale.h).
 *
 * A request is counted once for the role of its worker: when it begins to wait or is refused
 * instead, else when its worker is chosen. A prompt that one worker prefills and another decodes
 * counts for both roles, each with its part of the time; while such a request waits, it waits for a
 * decoder, and its prefill is not counted there.
 *
 * Threads: an event loop's own.
 */
#ifndef KVW_PREDICTED_H
#define KVW_PREDICTED_H

#include "proxy/exchange.h"

/* Counts a judged request that cannot be sent now (admit.h). */
void kvw_predicted_held(struct kvw_exchange *x);
/* Counts a request whose attempt begins; the gate has been informed (kvw_gates_picked). promise: to
 * the request (kvw_admit_promise). */
void kvw_predicted_sent(struct kvw_exchange *x, struct kvw_promise promise);

#endif
