/*
 * used.h - what a request has used: counted for its key, tenant and model (src/router/usage), and
 * charged to their limits (rate.h).
 *
 * Tokens are those of the answer's usage. An answer that reports none (a stream without
 * stream_options.include_usage, a client that left, a worker that broke) is estimated: the prompt
 * as predicted for routing, and a token for each event that passed. A repeated attempt counts once:
 * what a worker computed for an attempt that failed before its first token is not reported by
 * engines, and counted nowhere.
 *
 * Threads: those of the exchange's loop.
 */
#ifndef KVW_USED_H
#define KVW_USED_H

#include "proxy/exchange.h"

struct kvw_request_record;

struct kvw_used_tokens {
	uint64_t prompt, completion;
	bool prompt_estimated, completion_estimated; /* not reported by the answer's usage */
	/* the whole answer came and is good, and it reports its prompt's tokens */
	bool reported;
};

/* Returns what an exchange that ends so has used. */
struct kvw_used_tokens kvw_used_tokens(const struct kvw_exchange *x, enum kvw_end end);

/* Counts the events in a piece of the answer's stream. */
void kvw_used_watch(struct kvw_exchange *x, const char *data, size_t len);

/* Counts the exchange, which ends, and sets the estimates in its record. */
void kvw_used_end(struct kvw_exchange *x, struct kvw_request_record *record);

/* Returns whether the events of the answer's stream must be counted. */
static inline bool kvw_used_watches(const struct kvw_exchange *x)
{
	return x->event_stream && (x->loop->usage != NULL || x->rating.ticket.count > 0);
}

#endif
