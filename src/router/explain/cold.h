/*
 * cold.h - makes an explanation from a configuration file alone.
 */
#ifndef KVW_EXPLAIN_COLD_H
#define KVW_EXPLAIN_COLD_H

#include "admin_client.h"
#include "explain/options.h"

/* Makes the explanation from a fleet and a strategy that exist only during this call, without
 * connections or name look-ups. */
enum kvw_err kvw_explain_cold(const struct kvw_config *config,
	const struct kvw_explain_options *options, struct kvw_slice request,
	struct kvw_admin_reply *out) KVW_MUST_CHECK;

#endif
