/*
 * trace_http.h - serves GET /trace on the admin address: the way of each request (trace/trace.h).
 * Private to src/router/admin.
 */
#ifndef KVW_ADMIN_TRACE_HTTP_H
#define KVW_ADMIN_TRACE_HTTP_H

#include "fleet/fleet.h"

struct kvw_conn;
struct kvw_trace;

/* Serves a request to /trace. False: another path. trace NULL: requests are not traced. Called on
 * the control thread. */
bool kvw_trace_http(
	const struct kvw_trace *trace, const struct kvw_fleet *fleet, struct kvw_conn *conn);

#endif
