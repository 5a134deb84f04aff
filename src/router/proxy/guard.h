/*
 * guard.h - decides which clients may use which paths and models, by their keys.
 *
 * The guard checks the head before kvway keeps any of the body; steps check the model, known after
 * the scan, before a worker is looked for. Without auth.keys_file and expose.paths the guard costs
 * two comparisons.
 */
#ifndef KVW_GUARD_H
#define KVW_GUARD_H

#include "proxy/exchange.h"

/* Checks the head that the loop has just parsed. Overwrites the key in it. True: refused, an answer
 * was sent. */
bool kvw_guard_head(struct kvw_exchange *x);

/* --- for the steps that refuse a body --- */
/* Counts the refusal, and answers. */
void kvw_guard_refuse(struct kvw_exchange *x, int status, enum kvw_counter counter,
	const char *code, const char *message);
/* Returns whether the request's headers may choose its class and worker, and ask for the
 * decision. */
static inline bool kvw_guard_trusts(const struct kvw_exchange *x)
{
	return x->caller.key == NULL || x->caller.key->trusted;
}

#endif
