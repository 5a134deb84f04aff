/*
 * proxy.h - the data plane: N event loops that accept clients and forward their requests.
 *
 *   client --> listener.c, receive.c --> exchange: request.c, steps, send.c --> link --> worker
 *   client <-- client.c             <-- exchange: response.c                   <-- link <-- worker
 *
 * Each loop is a thread with its own listening socket (SO_REUSEPORT), or its share of the sockets
 * that another process handed over, with buffers, timers and connections; loops share only the
 * fleet, the strategy and a few atomics.
 */
#ifndef KVW_PROXY_H
#define KVW_PROXY_H

#include "admin/access_log.h"
#include "admin/admin.h"
#include "config/config.h"
#include "fleet/fleet.h"
#include "proxy/shared.h"
#include "feeds/sources.h"
#include "admin/metrics.h"

struct kvw_account;
struct kvw_auth;
struct kvw_ledger;
struct kvw_proxy;
struct kvw_rate_table;
struct kvw_sockets;
struct kvw_trace;
struct kvw_trace_sampling; /* trace/trace.h */

/* The proxy's parts. All borrowed until kvw_proxy_destroy(). */
struct kvw_proxy_deps {
	const struct kvw_config *config;
	struct kvw_fleet *fleet;
	struct kvw_strategy *strategy;
	struct kvw_metrics *metrics;
	struct kvw_access_log *access_log;
	struct kvw_admin *admin;
	struct kvw_trace *trace; /* NULL: requests are not traced */
	struct kvw_ledger *ledger; /* NULL: usage is not counted */
	struct kvw_account *memory; /* counts the memory that clients make this process hold */
	size_t loop_count;
	_Atomic int64_t *loop_turn_ns; /* [loop_count], written by the loops */

	struct kvw_auth *auth; /* keys of clients; NULL: clients need none */

	/* For a strategy that wants exact tokens; NULL otherwise. */
	struct kvw_sources *sources;

	/* Where `listen` sockets of a former process come from; used only during
	 * kvw_proxy_start. */
	struct kvw_sockets *sockets;
	/* Called when everything is made and no loop runs yet, to restore data of a former process;
	 * NULL: not called. */
	void (*before_loops)(void *arg, struct kvw_proxy *proxy);
	void *before_loops_arg;
};

/* Makes the trace of the proxy's requests, by `config`; NULL: no trace. The caller destroys it,
 * after the proxy. */
enum kvw_err kvw_proxy_create_trace(const struct kvw_config *config,
	const struct kvw_trace_sampling *sampling, size_t loops,
	struct kvw_trace **out) KVW_MUST_CHECK;

/* Returns the number of loops for `loops: 0`: the cores that affinity and cgroup quota allow. */
size_t kvw_proxy_default_loops(void);

/* Binds and starts the loops. KVW_EIO: cannot listen; `errors` has the cause. */
enum kvw_err kvw_proxy_start(const struct kvw_proxy_deps *deps, FILE *errors,
	struct kvw_proxy **out) KVW_MUST_CHECK;

/* Returns the bound host:port. Borrowed. */
const char *kvw_proxy_address(const struct kvw_proxy *proxy);

/* Forgets the stored responses of a worker that has left. */
void kvw_proxy_forget_worker(struct kvw_proxy *proxy, uint32_t worker);
/* Returns the loops' shared part of admission, which the proxy owns. */
struct kvw_admission *kvw_proxy_admission(struct kvw_proxy *proxy);
/* Returns the table of limits' use by keys, tenants and models, which the proxy owns. */
struct kvw_rate_table *kvw_proxy_rates(struct kvw_proxy *proxy);

/* Save and restore owners of responses, the use of limits, and usage over a restart (keep.h). keep:
 * any thread; recall: before the loops run. */
enum kvw_err kvw_proxy_keep(struct kvw_proxy *proxy, const struct kvw_keep_out *out) KVW_MUST_CHECK;
void kvw_proxy_recall(struct kvw_proxy *proxy, const struct kvw_keep_in *in);

/* Begins to drain: from now on each answer ends its connection; the loops stop listening when `how`
 * says, let running requests finish for drain.timeout, and end. Returns at once. At most one
 * call. */
void kvw_proxy_drain(struct kvw_proxy *proxy, enum kvw_drain how);

/* Waits until every loop has ended (after kvw_proxy_drain). */
void kvw_proxy_join(struct kvw_proxy *proxy);

/* called after kvw_proxy_join; NULL is allowed */
void kvw_proxy_destroy(struct kvw_proxy *proxy);

#endif
