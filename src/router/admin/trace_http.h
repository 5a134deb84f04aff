/*
 * trace_http.h - GET /trace on the admin address: the way of each request (trace/trace.h).
 * Private to src/router/admin.
 */
#ifndef KVW_ADMIN_TRACE_HTTP_H
#define KVW_ADMIN_TRACE_HTTP_H

#include "fleet/fleet.h"

struct kvw_conn;
struct kvw_trace;

/* True: the request's path is /trace, and is answered. trace NULL: nothing is traced. On the
 * control thread. */
bool kvw_trace_http(
	const struct kvw_trace *trace, const struct kvw_fleet *fleet, struct kvw_conn *conn);

#endif
