/*
 * rewrite.h - what kvway changes in a request's body: the salt of its tenant, the model that an
 * alias stands for, or its group's, and members that direct the engine, which keys may not send
 * unless they say so.
 *
 * Only a whole request is changed, once, where it lies, before it is routed: the rest of it,
 * tokens, repeats and scans, knows the changed body alone. What cannot be changed and would have to
 * be is refused by the guard.
 */
#ifndef KVW_REWRITE_H
#define KVW_REWRITE_H

#include "proxy/exchange.h"

/* The whole body was fed to x->scan, kvw_scan_finish comes next: gives it the salt and the model
 * that the body will have. */
void kvw_rewrite_scan(struct kvw_exchange *x);

/* After it, of a whole request: changes the body. KVW_ENOMEM. */
enum kvw_err kvw_rewrite_body(struct kvw_exchange *x) KVW_MUST_CHECK;

/* The tenant whose requests are kept apart; len 0: it has none. */
struct kvw_slice kvw_rewrite_tenant(const struct kvw_exchange *x);

/* Members that direct the engine and that the request's key may not send, as bits
 * (openai/engine_fields.h): they lose their values. */
uint32_t kvw_rewrite_fields(const struct kvw_exchange *x);

/* Once the key is known: which tenant's its session is. */
void kvw_rewrite_session(struct kvw_exchange *x);

#endif
