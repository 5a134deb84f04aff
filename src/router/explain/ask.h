/*
 * ask.h - gets an explanation, from a running router or from a configuration file alone.
 */
#ifndef KVW_EXPLAIN_ASK_H
#define KVW_EXPLAIN_ASK_H

#include <jansson.h>

#include "admin_client.h"
#include "explain/options.h"

/* Sends the request to the router's /explain by POST, with that key (NULL: none). KVW_EIO: there
 * was no answer, which was reported on err. KVW_ENOMEM. */
enum kvw_err kvw_explain_ask(const struct kvw_admin_where *where,
	const struct kvw_explain_options *options, const char *key, struct kvw_slice request,
	FILE *err, struct kvw_admin_reply *out) KVW_MUST_CHECK;

struct kvw_config;

/* Makes the explanation from a fleet and a strategy that exist only during this call, without
 * connections or name look-ups. */
enum kvw_err kvw_explain_cold(const struct kvw_config *config,
	const struct kvw_explain_options *options, struct kvw_slice request,
	struct kvw_admin_reply *out) KVW_MUST_CHECK;

/* Returns what the router says of itself, GET /status; the caller owns it. NULL: there is no such
 * answer, for example because the key may not ask for it. */
json_t *kvw_explain_ask_status(const struct kvw_admin_where *where, const char *key);

#endif
