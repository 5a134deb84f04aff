/*
 * admin.h - the control thread: admin address, probes, and the answers given on both ports.
 *
 * It has an event base of its own, so /health answers under any load of the loops.
 */
#ifndef KVW_ADMIN_H
#define KVW_ADMIN_H

#include "admin/access_log.h"
#include "config/config.h"
#include "fleet/fleet.h"
#include "admin/metrics.h"

/* A loop without a turn for this long is stuck. */
#define KVW_LOOP_STUCK_NS (INT64_C(5) * 1000000000)

struct kvw_admin;
struct kvw_explainer;
struct kvw_auth;
struct kvw_sharing;
struct kvw_state;
struct kvw_trace;
struct kvw_feed;
struct kvw_sources;
struct kvw_tokens;

struct kvw_sockets;
struct kvw_takeover_state;

/* Parts that the control thread uses; all borrowed until kvw_admin_stop(). */
struct kvw_admin_deps {
	const struct kvw_config *config; /* of the start; the fleet has the one in force */
	const char *config_path;         /* its file, for a reload; NULL: flags */
	struct kvw_fleet *fleet;
	struct kvw_metrics *metrics;
	const struct kvw_account *memory; /* of clients; NULL: it is not shown */
	/* Monotonic ns of the last turn of each loop, written by the loops (relaxed). */
	const _Atomic int64_t *loop_turn_ns;
	size_t loop_count;
	const struct kvw_access_log *access_log; /* for its drop count; may be NULL */
	const struct kvw_trace *trace;           /* NULL: requests are not traced */

	struct kvw_state *state;     /* snapshots; NULL: there are none */
	struct kvw_sharing *sharing; /* of limits; NULL: there is none */
	struct kvw_sharing *load_sharing; /* of load; may be the same */
	struct kvw_auth *auth; /* keys of clients; NULL: there are none */
	struct kvw_auth *admin_auth; /* keys of the admin address; NULL: there are none */

	/* For a strategy that wants exact tokens; else NULL. */
	struct kvw_tokens *tokens;
	struct kvw_feed *feed;
	struct kvw_sources *sources;

	/* Asked for the socket of `admin.listen` that another process had; during kvw_admin_start
	 * only. NULL: there is none. */
	struct kvw_sockets *sockets;
	bool waits; /* nothing is accepted before kvw_admin_listen */
	const struct kvw_takeover_state *takeover; /* NULL: this process takes no part in any */
};

/* Binds admin.listen and starts the thread. KVW_EIO: cannot bind; `errors` says why. */
enum kvw_err kvw_admin_start(const struct kvw_admin_deps *deps, FILE *errors,
	struct kvw_admin **out) KVW_MUST_CHECK;
/* The explainer answers /explain; borrowed until kvw_admin_stop(). At most once. */
void kvw_admin_set_explainer(struct kvw_admin *admin, const struct kvw_explainer *explainer);
/* While draining, /ready is 503. Any thread. */
void kvw_admin_set_draining(struct kvw_admin *admin);
/* The control thread looks at once whether a snapshot is to be written. Any thread. */
void kvw_admin_wake(struct kvw_admin *admin);
/* Reads the configuration's file again, soon. Any thread. */
void kvw_admin_reload(struct kvw_admin *admin);
/* Ends the thread and frees everything. NULL is allowed. */
void kvw_admin_stop(struct kvw_admin *admin);
/* Has each worker been probed, has each that is up listed its models, and each source that finds
 * workers answered? Any thread. */
bool kvw_admin_workers_known(const struct kvw_admin *admin) KVW_MUST_CHECK;
/* deps.waits: from now on its address is served. Once, from the main thread. */
void kvw_admin_listen(struct kvw_admin *admin);
/* Another process serves the address from the same socket: nothing is accepted here any more. */
void kvw_admin_hand_over(struct kvw_admin *admin);
/* After that: no client is there any more. */
bool kvw_admin_handed_over(const struct kvw_admin *admin) KVW_MUST_CHECK;

/* The address really bound (port 0 is resolved), for logs and tests. Borrowed. */
const char *kvw_admin_address(const struct kvw_admin *admin);

/* /health is 503 when a loop's last turn is older than 5 s: a loop without traffic must still turn
 * every second or so. /ready is 200 while some worker has answered its probe, may be chosen and has
 * a known list of models, and kvway is not draining. */

#define KVW_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* /metrics as the control thread has written it, for loops: a reference for kvw_metrics_text_put().
 * NULL: it is being written; to be asked again soon. Any thread; does not wait. */
struct kvw_metrics_text *kvw_admin_metrics(struct kvw_admin *admin, int64_t now_ns);

/* A local answer: for GET or HEAD of /health /ready /metrics /v1/models. Any thread. */
struct kvw_local_answer {
	int status;
	const char *content_type; /* static */
	char *body;               /* caller frees */
	size_t len;
};

/* path without query. key: whose request it is, by which /v1/models shows what that may use; NULL:
 * all.
 * KVW_ENOTFOUND: kvway does not answer this path itself. KVW_ENOMEM. Called on a loop between two
 * of its quiet points, or on the control thread: the fleet's view is read. */
enum kvw_err kvw_admin_answer(struct kvw_admin *admin, struct kvw_slice path,
	const struct kvw_client_key *key, int64_t now_ns,
	struct kvw_local_answer *out) KVW_MUST_CHECK;

#endif
