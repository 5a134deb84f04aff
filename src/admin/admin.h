/*
 * admin.h - the control thread: admin address, probes, and the answers given on both ports.
 *
 * It has an event base of its own, so /health answers under any load of the loops (D18).
 */
#ifndef KVW_ADMIN_H
#define KVW_ADMIN_H

#include "access_log.h"
#include "config.h"
#include "fleet.h"
#include "metrics.h"

struct kvw_admin;

/* What the control thread needs; all borrowed until kvw_admin_stop(). */
struct kvw_admin_deps {
	const struct kvw_config *config;
	struct kvw_fleet *fleet;
	struct kvw_metrics *metrics;
	/* Monotonic ns of the last turn of each loop, written by the loops (relaxed). */
	const _Atomic int64_t *loop_turn_ns;
	size_t loop_count;
};

/* Binds admin.listen and starts the thread. KVW_EIO: cannot bind; `errors` says why. */
enum kvw_err kvw_admin_start(const struct kvw_admin_deps *deps, FILE *errors,
	struct kvw_admin **out) KVW_MUST_CHECK;
/* While draining, /ready is 503. Any thread. */
void kvw_admin_set_draining(struct kvw_admin *admin);
/* Ends the thread and frees everything. NULL is allowed. */
void kvw_admin_stop(struct kvw_admin *admin);
/* The address really bound (port 0 is resolved), for logs and tests. Borrowed. */
const char *kvw_admin_address(const struct kvw_admin *admin);

/* A local answer: for GET or HEAD of /health /ready /metrics /v1/models. Any thread. */
struct kvw_local_answer {
	int status;
	const char *content_type; /* static */
	char *body;               /* caller frees */
	size_t len;
};

/* path without query. KVW_ENOTFOUND: not one of ours. KVW_ENOMEM. */
enum kvw_err kvw_admin_answer(struct kvw_admin *admin, struct kvw_slice path, int64_t now_ns,
	struct kvw_local_answer *out) KVW_MUST_CHECK;

#endif
