/*
 * admin.h - the control thread, which probes workers, serves the admin address, and prepares the
 * local answers of both addresses.
 *
 * It has an event base of its own, so that /health answers under any load of the loops.
 */
#ifndef KVW_ADMIN_H
#define KVW_ADMIN_H

#include "admin/access_log.h"
#include "config/config.h"
#include "fleet/fleet.h"
#include "admin/metrics.h"

/* A loop that has not turned for this long counts as stuck. */
#define KVW_LOOP_STUCK_NS (INT64_C(5) * 1000000000)

struct kvw_admin;
struct kvw_explainer;
struct kvw_auth;
struct kvw_sharing;
struct kvw_state;
struct kvw_trace;
struct kvw_otel_state;
struct kvw_feed;
struct kvw_sources;
struct kvw_tokens;
struct kvw_ledger;

struct kvw_sockets;
struct kvw_takeover_state;
struct kvw_admin_deps;
struct kvw_conn;
struct kvw_member_listing;
struct kvw_members;
struct kvw_reload_state;

/* Parts from which pages are made; borrowed for a call. */
struct kvw_admin_facts {
	const struct kvw_admin_deps *deps;
	struct kvw_members *members;
	const struct kvw_member_listing *listings; /* by source */
	const struct kvw_reload_state *reload;
	bool draining;
};

/* Paths of the address that another room serves (src/router/status). Called on the control
 * thread. */
struct kvw_admin_pages {
	/* about once a second */
	void (*tick)(void *arg, const struct kvw_admin_facts *facts, int64_t now_ns);
	/* Answers a request. False: another path. */
	bool (*serve)(void *arg, const struct kvw_admin_facts *facts, struct kvw_conn *conn,
		int64_t now_ns);
	void *arg;
};

/* Parts that the control thread uses; all borrowed until kvw_admin_stop(). */
struct kvw_admin_deps {
	/* configuration of the start; the fleet has the one in force */
	const struct kvw_config *config;
	/* the configuration's file, for reloads; NULL: it was given by flags */
	const char *config_path;
	struct kvw_fleet *fleet;
	struct kvw_metrics *metrics;
	const struct kvw_account *memory; /* memory that clients use; NULL: it is not shown */
	/* Monotonic ns of the last turn of each loop, written by the loops (relaxed). */
	const _Atomic int64_t *loop_turn_ns;
	size_t loop_count;
	/* whose count of dropped lines is shown; may be NULL */
	const struct kvw_access_log *access_log;
	const struct kvw_trace *trace;           /* NULL: requests are not traced */
	struct kvw_ledger *ledger;               /* NULL: usage is not counted */
	const struct kvw_otel_state *otel;       /* NULL: no spans are exported */

	struct kvw_state *state;     /* snapshots of learned state; NULL: there are none */
	/* shares use of limits with other replicas; NULL: not shared */
	struct kvw_sharing *sharing;
	/* shares load with other replicas; may be the same as `sharing` */
	struct kvw_sharing *load_sharing;
	struct kvw_auth *auth; /* keys of clients; NULL: there are none */
	struct kvw_auth *admin_auth; /* keys of the admin address; NULL: there are none */

	/* The tokenizer, for a strategy that wants exact tokens; otherwise NULL. */
	struct kvw_tokens *tokens;
	struct kvw_feed *feed;
	struct kvw_sources *sources;

	/* Where the socket of `admin.listen` may come from that another process had; used only
	 * during kvw_admin_start. NULL: nowhere. */
	struct kvw_sockets *sockets;
	bool waits; /* no connection is accepted before kvw_admin_listen */
	/* NULL: this process takes part in no takeover */
	const struct kvw_takeover_state *takeover;
	struct kvw_admin_pages pages; /* zeroed: there are none */
};

/* Binds admin.listen and starts the thread. KVW_EIO: cannot bind; `errors` says why. */
enum kvw_err kvw_admin_start(const struct kvw_admin_deps *deps, FILE *errors,
	struct kvw_admin **out) KVW_MUST_CHECK;
/* Sets the explainer that answers /explain; borrowed until kvw_admin_stop(). Called at most
 * once. */
void kvw_admin_set_explainer(struct kvw_admin *admin, const struct kvw_explainer *explainer);
/* Makes /ready answer 503 from now on. Any thread. */
void kvw_admin_set_draining(struct kvw_admin *admin);
/* Makes the control thread look at once whether a snapshot must be written. Any thread. */
void kvw_admin_wake(struct kvw_admin *admin);
/* Requests that the configuration's file is read again soon. Any thread. */
void kvw_admin_reload(struct kvw_admin *admin);
/* Ends the thread and frees everything. NULL is allowed. */
void kvw_admin_stop(struct kvw_admin *admin);
/* Returns whether each worker has been probed, each worker that is up has listed its models, and
 * each source of workers has answered. Any thread. */
bool kvw_admin_workers_known(const struct kvw_admin *admin) KVW_MUST_CHECK;
/* With deps.waits: serves the address from now on. Called once, by the main thread. */
void kvw_admin_listen(struct kvw_admin *admin);
/* Stops accepting, since another process serves the address from the same socket. */
void kvw_admin_hand_over(struct kvw_admin *admin);
/* Returns, after kvw_admin_hand_over, whether all clients have left. */
bool kvw_admin_handed_over(const struct kvw_admin *admin) KVW_MUST_CHECK;

/* Returns the address that was really bound (port 0 is resolved), for logs and tests. Borrowed. */
const char *kvw_admin_address(const struct kvw_admin *admin);

/* /health is 503 when a loop's last turn is older than 5 s: a loop without traffic must still turn
 * every second or so. /ready is 200 while some worker has answered its probe, may be chosen and has
 * a known list of models, and kvway is not draining. */

#define KVW_METRICS_TYPE "text/plain; version=0.0.4; charset=utf-8"

/* Returns the text of /metrics that the control thread has written, for loops: a reference, which
 * kvw_metrics_text_put() gives back. NULL: it is being written, and the caller should ask again
 * soon. Any thread; does not wait. */
struct kvw_metrics_text *kvw_admin_metrics(struct kvw_admin *admin, int64_t now_ns);

/* An answer to GET or HEAD of /health, /ready, /metrics or /v1/models. Any thread. */
struct kvw_local_answer {
	int status;
	const char *content_type; /* static */
	char *body;               /* caller frees */
	size_t len;
};

/* Makes a local answer. path: without query. key: the client's key, which decides what /v1/models
 * shows; NULL: everything. KVW_ENOTFOUND: kvway does not answer this path itself. KVW_ENOMEM.
 * Called by a loop within its turn, or by the control thread, since the fleet's view is read. */
enum kvw_err kvw_admin_answer(struct kvw_admin *admin, struct kvw_slice path,
	const struct kvw_client_key *key, int64_t now_ns,
	struct kvw_local_answer *out) KVW_MUST_CHECK;

#endif
