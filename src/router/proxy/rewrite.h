/*
 * rewrite.h - changes a request's body: the salt of its tenant, the model of an alias or of its
 * group, and members that direct the engine, which a key may send only if its entry allows them.
 *
 * kvway changes only whole requests, once, in place, before they are routed: tokens, repeats and
 * later scans see only the changed body. The guard refuses a body that would have to be changed and
 * cannot.
 */
#ifndef KVW_REWRITE_H
#define KVW_REWRITE_H

#include "proxy/exchange.h"

/* Gives x->scan the salt and the model of the changed body. Called after the whole body was fed to
 * the scan, and before kvw_scan_finish. */
void kvw_rewrite_scan(struct kvw_exchange *x);

/* Changes the body of a whole request, after kvw_scan_finish. KVW_ENOMEM. */
enum kvw_err kvw_rewrite_body(struct kvw_exchange *x) KVW_MUST_CHECK;

/* Returns the tenant whose requests are kept apart from others'; len 0: none. */
struct kvw_slice kvw_rewrite_tenant(const struct kvw_exchange *x);

/* Returns the members that direct the engine and that the request's key may not send, as bits
 * (openai/engine_fields.h): their values are removed. */
uint32_t kvw_rewrite_fields(const struct kvw_exchange *x);

/* Makes the session different from those of other tenants, once the key is known. */
void kvw_rewrite_session(struct kvw_exchange *x);

#endif
