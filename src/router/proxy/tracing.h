/*
 * tracing.h - a request's place in a distributed trace: taken from its head, passed on to its
 * workers (worker_head.c), completed at its end. Only where traces are exported (src/router/otel).
 *
 * Threads: those of the exchange's loop.
 */
#ifndef KVW_TRACING_H
#define KVW_TRACING_H

#include "http/head.h"
#include "proxy/exchange.h"

/* Continues the trace that the client's head names, or begins one. */
void kvw_tracing_join(struct kvw_exchange *x, const struct kvw_head *head);

/* Notes what the answer says of tokens. */
void kvw_tracing_end(const struct kvw_exchange *x);

#endif
