/*
 * workers.h - /workers on the admin address: which there are; add, change, drain and remove them.
 * Private to src/router/admin.
 */
#ifndef KVW_ADMIN_WORKERS_H
#define KVW_ADMIN_WORKERS_H

#include "admin/metrics.h"
#include "admin/worker_id.h"

struct event_base;
struct kvw_conn;

/* Parts that the room shows and changes; all borrowed. */
struct kvw_workers_desk {
	struct event_base *base;
	struct kvw_fleet *fleet;
	struct kvw_members *members;
	const struct kvw_metrics *metrics;
};

/* True: the request's path is /workers or below, and is answered, now or later.
 * On the control thread. */
bool kvw_workers_http(const struct kvw_workers_desk *desk, struct kvw_conn *conn);

/* Answers with the worker of this URL. */
void kvw_workers_answer(const struct kvw_workers_desk *desk, struct kvw_conn *conn, int status,
	const char *url);

/* workers_drain.c: answers when the last request of the worker has ended, or of all ranks if `url`
 * is their server's, or after wait_ms: with `drained` and `waited_ms` besides what it is. */
void kvw_workers_await_drain(const struct kvw_workers_desk *desk, struct kvw_conn *conn,
	struct kvw_worker *worker, const char *url, int64_t wait_ms);

#endif
