/*
 * shared.h - the data that all event loops share: limits, the account of repeats, the order to
 * drain, owners of stored responses.
 *
 * Threads: all loops, and the main thread, which orders the drain.
 */
#ifndef KVW_SHARED_H
#define KVW_SHARED_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "admission/admission.h"
#include "config/config.h"
#include "proxy/retry.h"
#include "proxy/front.h"
#include "proxy/owners.h"
#include "rates/table.h"
#include "base/account.h"
#include "server/acceptor.h"

struct kvw_ledger;

/* Handling of clients that arrive while the loops drain. */
enum kvw_drain {
	KVW_DRAIN_NOW,     /* no loop listens any more */
	KVW_DRAIN_SETTLES, /* loops serve them for drain.settle, then stop listening */
	KVW_DRAIN_HANDED,  /* another process accepts them from the same sockets */
};

struct kvw_shared {
	const struct kvw_config *config; /* configuration of the process's start; borrowed */
	struct kvw_account *memory;      /* counts limits.body_memory; borrowed */
	struct kvw_front front;          /* trusted proxies */
	struct kvw_owners *owners;       /* which worker keeps which response of /v1/responses */
	struct kvw_admission *admission; /* decides which requests may be sent now */
	struct kvw_rate_table *rates;    /* use of the limits of keys, tenants and models */
	struct kvw_ledger *ledger;       /* usage by users; borrowed; NULL: it is not counted */
	struct kvw_budget repeats;       /* account that pays for repeats at other workers */
	enum kvw_drain drain; /* how to drain; written before `draining` */
	_Atomic bool draining;
	struct kvw_pd_shared *pd;        /* what is learned of transfers between workers (pd.h) */
	int64_t connections_most; /* limits.connections, or fewer where descriptors are scarce */
	struct kvw_reserve reserve;        /* descriptor that all acceptors keep in reserve */
	_Atomic int64_t lack_logged_ns;    /* when kvw_shared_lacks last returned true */
	_Atomic int64_t unread_logged_ns;  /* of unread.c */
	/* Each on its own cache line, since every connection or body writes them. */
	_Alignas(64) _Atomic int64_t connections; /* of clients */
	/* connections among these whose TLS handshake has begun and not ended */
	_Atomic int64_t handshakes;
	_Alignas(64) _Atomic int64_t shadows;     /* copies under way */
	_Atomic int64_t shadow_bytes;             /* memory of the copies in bytes */
};

struct kvw_pd_shared;

enum kvw_err kvw_shared_init(struct kvw_shared *shared, const struct kvw_config *config,
	struct kvw_account *memory) KVW_MUST_CHECK;
void kvw_shared_finish(struct kvw_shared *shared);

/* Notes that no descriptor was left for a client or a worker. True: the caller logs that, once a
 * minute for all loops together. */
bool kvw_shared_lacks(struct kvw_shared *shared, int64_t now_ns) KVW_MUST_CHECK;

/* Counts one more client, within connections_most. False: refused, nothing was taken. */
bool kvw_shared_connection_take(struct kvw_shared *shared) KVW_MUST_CHECK;
void kvw_shared_connection_release(struct kvw_shared *shared);
/* Counts one more TLS handshake, within limits.handshakes. False: refused, nothing was taken. */
bool kvw_shared_handshake_take(struct kvw_shared *shared) KVW_MUST_CHECK;
void kvw_shared_handshake_release(struct kvw_shared *shared);

/* Takes bytes for copies of requests, within `most` (groups.shadow_memory). False: refused, nothing
 * was taken. */
bool kvw_shared_shadow_take(struct kvw_shared *shared, int64_t most, size_t bytes) KVW_MUST_CHECK;
void kvw_shared_shadow_release(struct kvw_shared *shared, size_t bytes);

struct kvw_proxy;
struct kvw_shared *kvw_proxy_shared(struct kvw_proxy *proxy); /* proxy.c */

#endif
