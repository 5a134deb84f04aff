/*
 * link.c - opens, keeps and closes connections to workers; link.h has the rules.
 *
 * A connection's socket is registered once for reading, writing and closing, edge-triggered: taking
 * and releasing an idle link costs no system call.
 */
#include "fleet/link.h"

#include <assert.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/peer.h"
#include "tls/tls.h"

enum kvw_err kvw_links_init(
	struct kvw_links *links, struct kvw_io_set *set, struct kvw_fleet *fleet)
{
	memset(links, 0, sizeof(*links));
	TAILQ_INIT(&links->closed);
	links->set = set;
	links->fleet = fleet;
	links->config = fleet->config;
	for (size_t i = 0; i < KVW_MAX_WORKERS; i++)
		TAILQ_INIT(&links->idle[i]);
	return KVW_OK;
}

static void close_idle(struct kvw_links *links, size_t slot)
{
	struct kvw_link *link;

	while ((link = TAILQ_FIRST(&links->idle[slot])) != NULL)
		kvw_link_close(link);
}

void kvw_links_finish(struct kvw_links *links)
{
	if (links->fleet == NULL)
		return; /* not created */
	for (size_t i = 0; i < links->fleet->count; i++)
		close_idle(links, i);
	kvw_links_reap(links);
	assert(links->busy_total == 0);
	links->fleet = NULL;
}

void kvw_links_let_go(struct kvw_links *links)
{
	for (size_t i = 0; i < links->fleet->count; i++) {
		struct kvw_worker *worker = links->fleet->workers[i];

		if (kvw_worker_life(worker) != KVW_WORKER_GONE || links->let_go[i] == worker->use ||
			atomic_load_explicit(&worker->loops_left, memory_order_acquire) == 0)
			continue;
		close_idle(links, i);
		if (links->held[i] > 0)
			continue;
		links->let_go[i] = worker->use;
		atomic_fetch_sub_explicit(&worker->loops_left, 1, memory_order_release);
	}
}

/* Returns whether the link leads to an address that the worker's name no longer has. */
static bool goes_astray(struct kvw_link *link)
{
	uint32_t version =
		atomic_load_explicit(&link->worker->address_version, memory_order_relaxed);

	if (link->address_version == version)
		return false;
	link->address_version = version;
	return !kvw_worker_has_address(link->worker, &link->to);
}

static void link_event(struct kvw_io *io)
{
	struct kvw_link *link = (struct kvw_link *)io;

	if (!link->idle)
		link->on_event(link, link->user);
	else if (io->readable)
		/* the worker has closed the link, or sent bytes without a request */
		kvw_link_close(link);
}

/* Opens a socket that connects to the address. KVW_ENOMEM: no descriptor or local port. */
static enum kvw_err open_socket(
	const struct kvw_config *config, const struct sockaddr_storage *address, int *out)
{
	int fd = socket(address->ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0)
		return errno == EAFNOSUPPORT ? KVW_EIO : KVW_ENOMEM;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	kvw_peer_watch(fd, config->timeout_peer_gone_ms, true);
	if (connect(fd, (const struct sockaddr *)address, kvw_address_len(address)) != 0 &&
		errno != EINPROGRESS) {
		/* no local port is free */
		enum kvw_err err = errno == EADDRNOTAVAIL || errno == EAGAIN ? KVW_ENOMEM : KVW_EIO;

		close(fd);
		return err;
	}
	*out = fd;
	return KVW_OK;
}

/* Connects to the worker's next address that does not fail at once. KVW_EIO: there is none. */
static enum kvw_err connect_next(struct kvw_link *link)
{
	struct kvw_worker *worker = link->worker;
	enum kvw_err err = KVW_EIO;
	int fd = -1;

	link->address_version =
		atomic_load_explicit(&worker->address_version, memory_order_relaxed);
	while (kvw_worker_address_from(worker, link->first, link->address, &link->to)) {
		err = open_socket(link->links->config, &link->to, &fd);
		if (err != KVW_EIO)
			break;
		link->address++;
	}
	if (err != KVW_OK)
		return err;
	if (kvw_io_open(&link->io, link->links->set, fd, link_event) != KVW_OK) {
		close(fd);
		link->io.fd = -1;
		return KVW_ENOMEM;
	}
	if (worker->tls &&
		kvw_tls_client_start(&link->io, worker->trust, worker->tls_name) != KVW_OK) {
		kvw_io_close(&link->io, false);
		return KVW_ENOMEM;
	}
	return KVW_OK;
}

/* Closes an idle link to free its descriptor. False: there is none. */
static bool close_one_idle(struct kvw_links *links)
{
	for (size_t i = 0; i < KVW_MAX_WORKERS && links->idle_total > 0; i++) {
		struct kvw_link *link = TAILQ_LAST(&links->idle[i], kvw_link_list);

		if (link == NULL)
			continue;
		kvw_link_close(link);
		return true;
	}
	return false;
}

static enum kvw_err link_connect(struct kvw_links *links, struct kvw_worker *worker,
	struct kvw_link **out)
{
	struct kvw_link *link = calloc(1, sizeof(*link));
	enum kvw_err err;

	if (link == NULL)
		return KVW_ENOMEM;
	link->links = links;
	link->worker = worker;
	link->first = kvw_worker_first_address(worker);
	err = connect_next(link);
	if (err == KVW_ENOMEM && close_one_idle(links))
		err = connect_next(link);
	if (err != KVW_OK) {
		free(link);
		return err;
	}
	kvw_links_hold(links, worker);
	*out = link;
	return KVW_OK;
}

enum kvw_err kvw_link_take(struct kvw_links *links, struct kvw_worker *worker, bool fresh,
	kvw_link_fn on_event, void *user, struct kvw_link **out)
{
	struct kvw_link *link;

	worker = worker->lead;
	link = fresh ? NULL : TAILQ_FIRST(&links->idle[worker->id]);
	if (link != NULL) {
		TAILQ_REMOVE(&links->idle[worker->id], link, entry);
		links->idle_count[worker->id]--;
		links->idle_total--;
		link->idle = false;
		link->reused = true;
	} else {
		enum kvw_err err = link_connect(links, worker, &link);

		if (err != KVW_OK)
			return err;
	}
	links->busy_total++;
	link->on_event = on_event;
	link->user = user;
	link->io.needs = user;
	*out = link;
	return KVW_OK;
}

/* Tries the worker's next address after one refused the connection or did not answer. */
static enum kvw_err try_next(struct kvw_link *link)
{
	struct sockaddr_storage next;
	const void *needs = link->io.needs;

	if (!kvw_worker_address_from(link->worker, link->first, link->address + 1, &next))
		return KVW_EIO;
	link->address++;
	kvw_io_close(&link->io, false);
	if (connect_next(link) != KVW_OK)
		return KVW_EIO;
	link->io.needs = needs;
	return KVW_EAGAIN;
}

enum kvw_err kvw_link_connect_result(struct kvw_link *link, int *cause)
{
	int error = 0;
	socklen_t len = sizeof(error);

	/* When this was not called from the socket's event, a pending event of that socket must not
	 * be taken for one of the next address's socket. */
	if (!link->io.readable && !link->io.writable && !link->io.broken &&
		kvw_tls_why(&link->io) == NULL)
		return KVW_EAGAIN;
	if (getsockopt(link->io.fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
		error = errno;
	if (error != 0) {
		*cause = error;
		return try_next(link);
	}
	if (kvw_tls_why(&link->io) != NULL || (!kvw_tls_ready(&link->io) && link->io.broken)) {
		*cause = EPROTO;
		return KVW_EIO;
	}
	if (!link->io.writable || !kvw_tls_ready(&link->io))
		return KVW_EAGAIN;
	link->connected = true;
	if (link->address > 0)
		kvw_worker_address_worked(link->worker, &link->to);
	return KVW_OK;
}

bool kvw_link_connect_elsewhere(struct kvw_link *link)
{
	return try_next(link) == KVW_EAGAIN;
}

const char *kvw_link_why(const struct kvw_link *link, int cause)
{
	const char *why = kvw_tls_why(&link->io);

	return why != NULL ? why : strerror(cause);
}

/* Returns whether unrequested bytes wait in the socket: the next answer would begin with them. */
static bool link_has_leftovers(struct kvw_link *link)
{
	char byte;

	kvw_tls_settle(&link->io);
	if (!link->io.readable)
		return false;
	if (link->io.ops != NULL)
		return true;
	if (recv(link->io.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0 || errno != EAGAIN)
		return true;
	/* no bytes came: otherwise any event of the idle link would look like leftovers */
	link->io.readable = false;
	return false;
}

void kvw_link_release(struct kvw_link *link, int64_t now_ns)
{
	struct kvw_links *links = link->links;
	uint32_t id = link->worker->id;

	assert(!link->idle && link->io.fd >= 0);
	if (link->io.peer_closed || goes_astray(link) ||
		kvw_worker_life(link->worker) != KVW_WORKER_LIVE || link_has_leftovers(link) ||
		links->idle_count[id] >= links->config->upstream_idle_connections) {
		kvw_link_close(link);
		return;
	}
	links->busy_total--;
	links->idle_total++;
	links->idle_count[id]++;
	link->idle = true;
	link->user = NULL;
	link->io.needs = NULL;
	link->idle_since_ns = now_ns;
	TAILQ_INSERT_HEAD(&links->idle[id], link, entry);
}

void kvw_link_close(struct kvw_link *link)
{
	struct kvw_links *links = link->links;

	if (link->closed)
		return;
	link->closed = true;
	if (link->idle) {
		TAILQ_REMOVE(&links->idle[link->worker->id], link, entry);
		links->idle_count[link->worker->id]--;
		links->idle_total--;
		link->idle = false;
	} else {
		links->busy_total--;
	}
	if (link->io.fd >= 0)
		kvw_io_close(&link->io, false);
	kvw_links_unhold(links, link->worker); /* until now TLS used the worker's trust */
	link->user = NULL;
	link->io.needs = NULL;
	TAILQ_INSERT_TAIL(&links->closed, link, entry);
}

/* Closes the idle links of one worker to addresses that it no longer has, if its list has
 * changed. */
static void close_astray(struct kvw_links *links, size_t slot)
{
	uint32_t version = atomic_load_explicit(
		&links->fleet->workers[slot]->address_version, memory_order_relaxed);
	struct kvw_link *link, *next;

	if (links->address_version[slot] == version)
		return;
	links->address_version[slot] = version;
	for (link = TAILQ_FIRST(&links->idle[slot]); link != NULL; link = next) {
		next = TAILQ_NEXT(link, entry);
		if (goes_astray(link))
			kvw_link_close(link);
	}
}

void kvw_links_sweep(struct kvw_links *links, int64_t now_ns)
{
	int64_t oldest = now_ns - links->config->timeout_upstream_idle_ms * KVW_NS_PER_MS;

	if (links->idle_total == 0)
		return;
	for (size_t i = 0; i < links->fleet->count; i++) {
		struct kvw_link *link;

		close_astray(links, i);
		while ((link = TAILQ_LAST(&links->idle[i], kvw_link_list)) != NULL &&
			link->idle_since_ns < oldest)
			kvw_link_close(link);
	}
}

void kvw_links_reap(struct kvw_links *links)
{
	struct kvw_link *link;

	while ((link = TAILQ_FIRST(&links->closed)) != NULL) {
		TAILQ_REMOVE(&links->closed, link, entry);
		free(link);
	}
}
