/*
 * trace_page.h - writes a request's way as a line of JSON. Private to src/router/admin.
 */
#ifndef KVW_ADMIN_TRACE_PAGE_H
#define KVW_ADMIN_TRACE_PAGE_H

#include "base/page.h"
#include "fleet/fleet.h"
#include "trace/trace.h"

/* Returns the URL of the worker that a note names (kvw_trace_worker), borrowed. NULL: the worker
 * has left. The control thread. */
const char *kvw_trace_worker_url(const struct kvw_fleet *fleet, uint32_t worker);

/* Writes the line. now_ns: monotonic; shows how long a request under way has taken. */
void kvw_trace_page(const struct kvw_trace *trace, const struct kvw_fleet *fleet,
	const struct kvw_trace_story *story, int64_t now_ns, struct kvw_page *out);

#endif
