/*
 * link.c - see link.h.
 *
 * Registered once per connection for reading, writing and closing, edge-triggered: taking and
 * releasing an idle link costs no system call.
 */
#include "fleet/link.h"

#include <assert.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "tls/tls.h"

enum kvw_err kvw_links_init(struct kvw_links *links, struct kvw_io_set *set,
	const struct kvw_fleet *fleet)
{
	memset(links, 0, sizeof(*links));
	TAILQ_INIT(&links->closed);
	links->set = set;
	links->config = fleet->config;
	links->tls = fleet->tls;
	links->worker_count = fleet->count;
	links->idle = calloc(fleet->count, sizeof(links->idle[0]));
	links->idle_count = calloc(fleet->count, sizeof(links->idle_count[0]));
	if (links->idle == NULL || links->idle_count == NULL) {
		free(links->idle);
		free(links->idle_count);
		memset(links, 0, sizeof(*links)); /* nothing to finish */
		return KVW_ENOMEM;
	}
	for (size_t i = 0; i < fleet->count; i++)
		TAILQ_INIT(&links->idle[i]);
	return KVW_OK;
}

void kvw_links_finish(struct kvw_links *links)
{
	for (size_t i = 0; i < links->worker_count; i++) {
		struct kvw_link *link;

		while ((link = TAILQ_FIRST(&links->idle[i])) != NULL)
			kvw_link_close(link);
	}
	kvw_links_reap(links);
	assert(links->busy_total == 0);
	free(links->idle);
	free(links->idle_count);
	links->idle = NULL;
	links->worker_count = 0;
}

static void link_event(struct kvw_io *io)
{
	struct kvw_link *link = (struct kvw_link *)io;

	if (!link->idle)
		link->on_event(link, link->user);
	else if (io->readable)
		kvw_link_close(link); /* the worker closed it, or speaks out of turn */
}

static enum kvw_err link_connect(struct kvw_links *links, struct kvw_worker *worker,
	struct kvw_link **out)
{
	struct kvw_link *link = calloc(1, sizeof(*link));
	enum kvw_err err = KVW_ENOMEM;
	int fd = -1, one = 1;

	if (link == NULL)
		return KVW_ENOMEM;
	link->links = links;
	link->worker = worker;
	fd = socket(worker->addr.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		goto fail;
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (connect(fd, (struct sockaddr *)&worker->addr, worker->addr_len) != 0 &&
		errno != EINPROGRESS) {
		if (errno != EADDRNOTAVAIL && errno != EAGAIN) /* no port of ours is free */
			err = KVW_EIO;
		goto fail;
	}
	if (kvw_io_open(&link->io, links->set, fd, link_event) != KVW_OK)
		goto fail;
	if (worker->tls && kvw_tls_client_start(&link->io, links->tls, worker->host) != KVW_OK) {
		kvw_io_close(&link->io, false);
		fd = -1;
		goto fail;
	}
	*out = link;
	return KVW_OK;

fail:
	if (fd >= 0)
		close(fd);
	free(link);
	return err;
}

enum kvw_err kvw_link_take(struct kvw_links *links, struct kvw_worker *worker, bool fresh,
	kvw_link_fn on_event, void *user, struct kvw_link **out)
{
	struct kvw_link *link = fresh ? NULL : TAILQ_FIRST(&links->idle[worker->id]);

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

enum kvw_err kvw_link_connect_result(struct kvw_link *link, int *cause)
{
	int error = 0;
	socklen_t len = sizeof(error);

	if (getsockopt(link->io.fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
		error = errno;
	if (error != 0) {
		*cause = error;
		return KVW_EIO;
	}
	if (kvw_tls_why(&link->io) != NULL || (!kvw_tls_ready(&link->io) && link->io.broken)) {
		*cause = EPROTO;
		return KVW_EIO;
	}
	if (!link->io.writable || !kvw_tls_ready(&link->io))
		return KVW_EAGAIN;
	link->connected = true;
	return KVW_OK;
}

const char *kvw_link_why(const struct kvw_link *link, int cause)
{
	const char *why = kvw_tls_why(&link->io);

	return why != NULL ? why : strerror(cause);
}

/* Whether unrequested bytes wait in the socket: the next answer would begin with them. */
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
	link->io.readable = false; /* nothing: else any event would look like bytes while idle */
	return false;
}

void kvw_link_release(struct kvw_link *link, int64_t now_ns)
{
	struct kvw_links *links = link->links;
	uint32_t id = link->worker->id;

	assert(!link->idle && link->io.fd >= 0);
	if (link->io.peer_closed || link_has_leftovers(link) ||
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

	if (link->io.fd < 0)
		return;
	if (link->idle) {
		TAILQ_REMOVE(&links->idle[link->worker->id], link, entry);
		links->idle_count[link->worker->id]--;
		links->idle_total--;
		link->idle = false;
	} else {
		links->busy_total--;
	}
	kvw_io_close(&link->io, false);
	link->user = NULL;
	link->io.needs = NULL;
	TAILQ_INSERT_TAIL(&links->closed, link, entry);
}

void kvw_links_sweep(struct kvw_links *links, int64_t now_ns)
{
	int64_t oldest = now_ns - links->config->timeout_upstream_idle_ms * KVW_NS_PER_MS;

	if (links->idle_total == 0)
		return;
	for (size_t i = 0; i < links->worker_count; i++) {
		struct kvw_link *link;

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
