/*
 * workers.h - serves /workers on the admin address: lists, adds, changes, drains and removes
 * workers. Private to src/router/admin.
 */
#ifndef KVW_ADMIN_WORKERS_H
#define KVW_ADMIN_WORKERS_H

#include "admin/metrics.h"
#include "admin/worker_id.h"

struct event_base;
struct kvw_conn;

/* Parts that the paths show and change; all borrowed. */
struct kvw_workers_desk {
	struct event_base *base;
	struct kvw_fleet *fleet;
	struct kvw_members *members;
	const struct kvw_metrics *metrics;
};

/* Serves a request to /workers or below it, now or later. False: another path. Called on the
 * control thread. */
bool kvw_workers_http(const struct kvw_workers_desk *desk, struct kvw_conn *conn);

/* Answers with the worker of this URL. */
void kvw_workers_answer(const struct kvw_workers_desk *desk, struct kvw_conn *conn, int status,
	const char *url);

/* Answers when the last request of the worker has ended, or of all ranks if `url` is their
 * server's, or after wait_ms; the page then also has `drained` and `waited_ms`
 * (workers_drain.c). */
void kvw_workers_await_drain(const struct kvw_workers_desk *desk, struct kvw_conn *conn,
	struct kvw_worker *worker, const char *url, int64_t wait_ms);

#endif
