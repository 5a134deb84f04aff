/*
 * acceptor.c - accepts clients on the listening socket of an event loop.
 */
#include "server/acceptor.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

/* most clients accepted in one turn, so that other sockets get their turn */
#define ACCEPTS_AT_ONCE 64

/* Opens descriptors for the reserve until it is full or no descriptor is left. */
static void fill_reserve(struct kvw_reserve *reserve)
{
	while (reserve->held < KVW_RESERVE_FDS) {
		int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

		if (fd < 0)
			return;
		reserve->fds[reserve->held++] = fd;
	}
}

void kvw_reserve_init(struct kvw_reserve *reserve)
{
	*reserve = (struct kvw_reserve){.lock = PTHREAD_MUTEX_INITIALIZER};
	fill_reserve(reserve);
}

void kvw_reserve_finish(struct kvw_reserve *reserve)
{
	while (reserve->held > 0)
		close(reserve->fds[--reserve->held]);
}

static int accept_one(struct kvw_acceptor *acceptor, struct sockaddr_storage *peer)
{
	socklen_t len = sizeof(*peer);

	return accept4(acceptor->fd, (struct sockaddr *)peer, &len, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

/* Stops watching the listening socket, because no client can be accepted and the readable socket
 * would wake the loop again and again. */
static void rest(struct kvw_acceptor *acceptor)
{
	if (acceptor->ops->starved != NULL)
		acceptor->ops->starved(acceptor);
	if (acceptor->set == NULL)
		return;
	kvw_io_unwatch(&acceptor->io);
	acceptor->resting = true;
}

static bool out_of_descriptors(void)
{
	return errno == EMFILE || errno == ENFILE;
}

/* Called when no descriptor is free: takes one connection from the queue and refuses it. */
static void shed(struct kvw_acceptor *acceptor)
{
	struct kvw_reserve *reserve = acceptor->reserve;
	struct sockaddr_storage peer;
	bool starved;
	int fd;

	if (reserve->held > 0)
		close(reserve->fds[--reserve->held]);
	fd = accept_one(acceptor, &peer);
	starved = fd < 0 && out_of_descriptors(); /* another thread was faster */
	if (fd >= 0)
		acceptor->ops->refuse_take(acceptor, fd, KVW_REFUSED_DESCRIPTORS);
	fill_reserve(reserve);
	if (starved)
		rest(acceptor);
}

/* Accepts the next client. Returns -1 if there is none; a client may have been refused then. The
 * caller holds the reserve's lock. */
static int next_client(struct kvw_acceptor *acceptor, struct sockaddr_storage *peer)
{
	int fd = -1;

	fill_reserve(acceptor->reserve);
	errno = EMFILE;
	if (acceptor->reserve->held == KVW_RESERVE_FDS)
		fd = accept_one(acceptor, peer);
	if (fd >= 0)
		return fd;
	if (out_of_descriptors())
		shed(acceptor);
	else if (errno == ENOMEM || errno == ENOBUFS)
		rest(acceptor);
	return -1;
}

void kvw_acceptor_run(struct kvw_acceptor *acceptor)
{
	const struct kvw_acceptor_ops *ops = acceptor->ops;

	ops->begin(acceptor);
	for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
		struct sockaddr_storage peer;
		int fd;

		pthread_mutex_lock(&acceptor->reserve->lock);
		fd = next_client(acceptor, &peer);
		pthread_mutex_unlock(&acceptor->reserve->lock);
		if (fd < 0)
			return;
		if (ops->admit(acceptor))
			ops->serve_take(acceptor, fd, (const struct sockaddr *)&peer);
		else
			ops->refuse_take(acceptor, fd, KVW_REFUSED_LIMIT);
	}
}

static void on_event(struct kvw_io *io)
{
	kvw_acceptor_run((struct kvw_acceptor *)io); /* io is the first member of an acceptor */
}

void kvw_acceptor_init(
	struct kvw_acceptor *acceptor, const struct kvw_acceptor_ops *ops, int fd)
{
	*acceptor = (struct kvw_acceptor){.io.fd = -1,
		.ops = ops,
		.fd = fd,
		.own.lock = PTHREAD_MUTEX_INITIALIZER,
		.reserve = &acceptor->own};
	if (fd >= 0)
		fill_reserve(&acceptor->own);
}

void kvw_acceptor_share(struct kvw_acceptor *acceptor, struct kvw_reserve *reserve)
{
	kvw_reserve_finish(&acceptor->own);
	acceptor->reserve = reserve;
}

enum kvw_err kvw_acceptor_watch(struct kvw_acceptor *acceptor, struct kvw_io_set *set)
{
	if (acceptor->fd < 0)
		return KVW_OK;
	acceptor->set = set;
	return kvw_io_watch(&acceptor->io, set, acceptor->fd, on_event);
}

void kvw_acceptor_tick(struct kvw_acceptor *acceptor)
{
	bool some;

	if (acceptor->fd < 0)
		return;
	pthread_mutex_lock(&acceptor->reserve->lock);
	fill_reserve(acceptor->reserve);
	some = acceptor->reserve->held > 0;
	pthread_mutex_unlock(&acceptor->reserve->lock);
	if (acceptor->resting && some &&
		kvw_io_watch(&acceptor->io, acceptor->set, acceptor->fd, on_event) == KVW_OK)
		acceptor->resting = false;
}

void kvw_acceptor_stop(struct kvw_acceptor *acceptor)
{
	if (acceptor->fd < 0)
		return;
	kvw_io_unwatch(&acceptor->io);
	close(acceptor->fd);
	acceptor->fd = -1;
}

void kvw_acceptor_finish(struct kvw_acceptor *acceptor)
{
	kvw_acceptor_stop(acceptor);
	kvw_reserve_finish(&acceptor->own);
}
