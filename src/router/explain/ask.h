/*
 * explain_ask.h - two sources of an explanation: a running router, and a file alone.
 */
#ifndef KVW_EXPLAIN_ASK_H
#define KVW_EXPLAIN_ASK_H

#include "admin_client.h"
#include "explain/options.h"

/* POSTs the request to /explain of the router, with that key (NULL: none). KVW_EIO: no answer,
 * reported on err. KVW_ENOMEM. */
enum kvw_err kvw_explain_ask(const struct kvw_admin_where *where,
	const struct kvw_explain_options *options, const char *key, struct kvw_slice request,
	FILE *err, struct kvw_admin_reply *out) KVW_MUST_CHECK;

struct kvw_config;

/* The same from a fleet and a strategy made for this call, without connections or name look-ups. */
enum kvw_err kvw_explain_cold(const struct kvw_config *config,
	const struct kvw_explain_options *options, struct kvw_slice request,
	struct kvw_admin_reply *out) KVW_MUST_CHECK;

#endif
