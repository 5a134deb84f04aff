/*
 * guard.h - which clients may ask for what: keys of clients, paths, models.
 *
 * What the head says is decided before anything of the body is kept; the model is known after the scan and is
 * looked at before a worker is. Without auth.keys_file and expose.paths it costs two comparisons.
 */
#ifndef KVW_GUARD_H
#define KVW_GUARD_H

#include "proxy/exchange.h"

/* At the head, which the loop has just parsed. Overwrites the key in it. True: refused, an answer was sent. */
bool kvw_guard_head(struct kvw_exchange *x);

/* Before it is routed: its model, and what its body lacks (rewrite.h). True: refused, an answer was sent. */
bool kvw_guard_body(struct kvw_exchange *x);

/* May the request's headers choose its class and its worker, and see the decision? */
static inline bool kvw_guard_trusts(const struct kvw_exchange *x)
{
	return x->key == NULL || x->key->trusted;
}

#endif
