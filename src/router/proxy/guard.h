/*
 * guard.h - which clients may ask for what: keys of clients, paths, models.
 *
 * What the head says is decided before anything of the body is kept; the model is known after the
 * scan and is looked at before a worker is. Without auth.keys_file and expose.paths it costs two
 * comparisons.
 */
#ifndef KVW_GUARD_H
#define KVW_GUARD_H

#include "proxy/exchange.h"

/* At the head, which the loop has just parsed. Overwrites the key in it. True: refused, an answer
 * was sent. */
bool kvw_guard_head(struct kvw_exchange *x);

/* --- for the steps that refuse a body --- */
/* Counts it, and answers. */
void kvw_guard_refuse(struct kvw_exchange *x, int status, enum kvw_counter counter,
	const char *code, const char *message);
/* May the request's headers choose its class and its worker, and see the decision? */
static inline bool kvw_guard_trusts(const struct kvw_exchange *x)
{
	return x->caller.key == NULL || x->caller.key->trusted;
}

#endif
