/*
 * worker_page.h - shows a worker on the admin address, as JSON. For src/router/admin and
 * src/router/status.
 */
#ifndef KVW_WORKER_PAGE_H
#define KVW_WORKER_PAGE_H

#include <jansson.h>

#include "admin/metrics.h"
#include "admin/worker_id.h"

/* Returns the page of one worker. NULL: out of memory. Control thread. */
json_t *kvw_worker_page(const struct kvw_worker_list *list, size_t index,
	const struct kvw_fleet *fleet, const struct kvw_metrics *metrics, int64_t now_ns);

/* Returns the page of the worker with this URL; if it has left, its state is "removed". For a
 * server with ranks returns a list of their pages. */
json_t *kvw_worker_page_of(struct kvw_members *members, const char *url, struct kvw_fleet *fleet,
	const struct kvw_metrics *metrics, int64_t now_ns);

#endif
