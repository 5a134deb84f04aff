/*
 * link.h - connections to workers, kept per loop.
 *
 * A link is connecting, busy (it has a user) or idle. Idle ones stay registered with the loop, so a
 * worker that closes one is noticed before it is used; the race that remains (closed while our
 * request travels) is the user's: link->reused marks a stale connection as the likely cause.
 * The link used last is taken first, so that the others can age and go. A link that cannot connect
 * to the worker's first address tries the next one by itself.
 *
 * Threads: everything here belongs to one loop.
 */
#ifndef KVW_LINK_H
#define KVW_LINK_H

#include <sys/queue.h>

#include "fleet/fleet.h"
#include "base/io.h"

struct kvw_link;
struct kvw_links;

/* Something happened on the socket of a busy or connecting link; io says what. */
typedef void (*kvw_link_fn)(struct kvw_link *link, void *user);

/* A connection to a worker. Owned by kvw_links. */
struct kvw_link {
	struct kvw_io io; /* first: the socket's callback gets the link by it */
	struct kvw_links *links;
	struct kvw_worker *worker;
	TAILQ_ENTRY(kvw_link) entry; /* idle list or, closed, the list of those to free */
	int64_t idle_since_ns;
	size_t first;   /* of the worker's addresses: with which it began */
	size_t address; /* counted from that one: to which it connects */
	struct sockaddr_storage to;
	uint32_t address_version; /* of the worker, when `to` was found in its list last */
	bool connected;
	bool reused; /* had an earlier request */
	bool idle;
	bool closed;
	kvw_link_fn on_event; /* of the user */
	void *user;
};

TAILQ_HEAD(kvw_link_list, kvw_link);

/* All links of one loop. */
struct kvw_links {
	struct kvw_io_set *set;
	struct kvw_link_list idle[KVW_MAX_WORKERS]; /* by slot, most recently used first */
	uint32_t idle_count[KVW_MAX_WORKERS];
	uint32_t held[KVW_MAX_WORKERS];   /* by links, and by kvw_links_hold */
	/* Version of the list of addresses to which the idle links of a slot lead. */
	uint32_t address_version[KVW_MAX_WORKERS];
	uint32_t let_go[KVW_MAX_WORKERS]; /* the slot's use that this loop has let go of last */
	struct kvw_link_list closed; /* freed by kvw_links_reap */
	struct kvw_fleet *fleet;
	const struct kvw_config *config;
	size_t idle_total, busy_total;
};

enum kvw_err kvw_links_init(struct kvw_links *links, struct kvw_io_set *set,
	struct kvw_fleet *fleet) KVW_MUST_CHECK;
/* Closes every idle link. No link may be busy. */
void kvw_links_finish(struct kvw_links *links);

/*
 * An idle link, or with `fresh` or none idle a new one that connects (connected is false until
 * on_event says otherwise: call kvw_link_connect_result). KVW_EIO: refused at once. KVW_ENOMEM: we
 * lack memory, a descriptor or a port, which is no fault of the worker.
 */
enum kvw_err kvw_link_take(struct kvw_links *links, struct kvw_worker *worker, bool fresh,
	kvw_link_fn on_event, void *user, struct kvw_link **out) KVW_MUST_CHECK;

/* On an event of a connecting link. KVW_OK: connected, and the TLS handshake done; KVW_EAGAIN: not
 * yet;
 * KVW_EIO: failed, with *cause an errno. */
enum kvw_err kvw_link_connect_result(struct kvw_link *link, int *cause) KVW_MUST_CHECK;

/* A connecting link took too long: it begins again with the worker's next address. False: there is
 * none. Not in an event of the link's. */
bool kvw_link_connect_elsewhere(struct kvw_link *link);

/* A failure with this errno in words, TLS's own where it was TLS.
 * Borrowed until the link is closed. */
const char *kvw_link_why(const struct kvw_link *link, int cause);

/* The exchange on it ended cleanly: keep for another. */
void kvw_link_release(struct kvw_link *link, int64_t now_ns);
/* Closes a link in any state. The memory stays until kvw_links_reap. */
void kvw_link_close(struct kvw_link *link);

/* A request of this loop refers to the worker: its texts stay until kvw_links_unhold. */
static inline void kvw_links_hold(struct kvw_links *links, const struct kvw_worker *worker)
{
	links->held[worker->id]++;
}

static inline void kvw_links_unhold(struct kvw_links *links, const struct kvw_worker *worker)
{
	links->held[worker->id]--;
}

/* While the fleet has workers that are GONE: closes idle links to them, and says so of each that
 * nothing in this loop refers to any more. Between two turns. */
void kvw_links_let_go(struct kvw_links *links);

/* Closes links idle for longer than timeouts.upstream_idle, and those to an address that the
 * worker's name has no more. From the loop's tick. */
void kvw_links_sweep(struct kvw_links *links, int64_t now_ns);
/* Frees closed links. Between turns of the loop only. */
void kvw_links_reap(struct kvw_links *links);

#endif
