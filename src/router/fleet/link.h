/*
 * link.h - connections to workers, kept per loop.
 *
 * A link is connecting, busy (it has a user) or idle. Idle ones stay registered with the loop, so a
 * close by the worker is noticed before the link is reused; the user handles the remaining race, a
 * close while the request travels: link->reused shows that a stale connection is the likely cause.
 * The link that was used last is taken first, so that the others can age and be closed. A link that
 * cannot connect to the worker's first address tries the next one by itself.
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

/* Called on an event of a busy or connecting link's socket; io has the state. */
typedef void (*kvw_link_fn)(struct kvw_link *link, void *user);

/* A connection to a worker. Owned by kvw_links. */
struct kvw_link {
	struct kvw_io io; /* first: the socket's callback gets the link by it */
	struct kvw_links *links;
	struct kvw_worker *worker; /* a lead */
	/* link in the idle list, or in the list of closed links to free */
	TAILQ_ENTRY(kvw_link) entry;
	int64_t idle_since_ns;
	size_t first;   /* index of the worker's address tried first */
	size_t address; /* number of the present address, counted from `first` */
	struct sockaddr_storage to;
	uint32_t address_version; /* version of the worker's list when `to` was last found in it */
	bool connected;
	bool reused; /* the link has had an earlier request */
	bool idle;
	bool closed;
	kvw_link_fn on_event; /* callback of the user */
	void *user;
};

TAILQ_HEAD(kvw_link_list, kvw_link);

/* All links of one loop. */
struct kvw_links {
	struct kvw_io_set *set;
	/* idle links by slot, most recently used first */
	struct kvw_link_list idle[KVW_MAX_WORKERS];
	uint32_t idle_count[KVW_MAX_WORKERS];
	uint32_t held[KVW_MAX_WORKERS]; /* number of links and of kvw_links_hold calls per worker */
	/* Version of the address list that a slot's idle links were checked against. */
	uint32_t address_version[KVW_MAX_WORKERS];
	uint32_t let_go[KVW_MAX_WORKERS]; /* which use of the slot this loop released last */
	struct kvw_link_list closed; /* closed links, freed by kvw_links_reap */
	struct kvw_fleet *fleet;
	const struct kvw_config *config;
	size_t idle_total, busy_total;
};

enum kvw_err kvw_links_init(struct kvw_links *links, struct kvw_io_set *set,
	struct kvw_fleet *fleet) KVW_MUST_CHECK;
/* Closes every idle link. No link may be busy. */
void kvw_links_finish(struct kvw_links *links);

/*
 * Takes an idle link to the worker's server, which its ranks share. With `fresh`, or if none is
 * idle, makes a link that connects; the user then calls kvw_link_connect_result in on_event until
 * it is connected. KVW_EIO: refused at once. KVW_ENOMEM: no memory, descriptor or local port, which
 * is not the worker's fault.
 */
enum kvw_err kvw_link_take(struct kvw_links *links, struct kvw_worker *worker, bool fresh,
	kvw_link_fn on_event, void *user, struct kvw_link **out) KVW_MUST_CHECK;

/* Handles an event of a connecting link. KVW_OK: connected, and the TLS handshake done; KVW_EAGAIN:
 * not yet; KVW_EIO: failed, with *cause an errno. */
enum kvw_err kvw_link_connect_result(struct kvw_link *link, int *cause) KVW_MUST_CHECK;

/* Makes a link that connects too slowly try the worker's next address. False: there is none. Must
 * not be called in an event of the link. */
bool kvw_link_connect_elsewhere(struct kvw_link *link);

/* Text of a failure with this errno; TLS's own text for its failures. Borrowed until the link is
 * closed. */
const char *kvw_link_why(const struct kvw_link *link, int cause);

/* Keeps a link for reuse after its exchange ended cleanly. */
void kvw_link_release(struct kvw_link *link, int64_t now_ns);
/* Closes a link in any state. The memory stays until kvw_links_reap. */
void kvw_link_close(struct kvw_link *link);

/* Holds a worker for a request of this loop: its texts stay valid until kvw_links_unhold. */
static inline void kvw_links_hold(struct kvw_links *links, const struct kvw_worker *worker)
{
	links->held[worker->id]++;
}

static inline void kvw_links_unhold(struct kvw_links *links, const struct kvw_worker *worker)
{
	links->held[worker->id]--;
}

/* While the fleet has GONE workers: closes idle links to them, and releases each worker that
 * nothing in this loop refers to. Called between two turns. */
void kvw_links_let_go(struct kvw_links *links);

/* Closes links that have been idle for longer than timeouts.upstream_idle, and those to addresses
 * that the worker's name no longer has. Called by the loop's tick. */
void kvw_links_sweep(struct kvw_links *links, int64_t now_ns);
/* Frees closed links. Called between two turns of the loop only. */
void kvw_links_reap(struct kvw_links *links);

#endif
