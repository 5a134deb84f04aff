/*
 * wire.c - sends and receives over a socket that never blocks.
 */
#include "redis/wire.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "redis/wire_tls.h"

/* Keepalive detects after about half a minute that the peer of an idle connection has vanished;
 * while commands are under way, their deadlines detect it. */
#define KEEPALIVE_IDLE_S     15
#define KEEPALIVE_INTERVAL_S 5
#define KEEPALIVE_PROBES     3

static bool fail_wire(struct kvw_redis_wire *w, int error)
{
	w->failed = true;
	if (w->why[0] == '\0')
		snprintf(w->why, sizeof(w->why), "%s", strerror(error));
	return false;
}

/* The send buffer is small so that bytes are still in the processor's cache when the kernel sends
 * them: with a buffer of megabytes large values cost both sides a third more. The size is enough
 * for a local network, since the kernel doubles it. */
#define SEND_BUFFER_BYTES (256 << 10)

/* Sets options of the socket; it is no failure if one is refused. */
static void tune(int fd, int family)
{
	const struct {
		int level, name, value;
	} options[] = {
		{IPPROTO_TCP, TCP_NODELAY, 1},
		{SOL_SOCKET, SO_SNDBUF, SEND_BUFFER_BYTES},
		{SOL_SOCKET, SO_KEEPALIVE, 1},
		{IPPROTO_TCP, TCP_KEEPIDLE, KEEPALIVE_IDLE_S},
		{IPPROTO_TCP, TCP_KEEPINTVL, KEEPALIVE_INTERVAL_S},
		{IPPROTO_TCP, TCP_KEEPCNT, KEEPALIVE_PROBES},
	};

	for (size_t i = 0; family != AF_UNIX && i < sizeof(options) / sizeof(options[0]); i++)
		(void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
			sizeof(options[i].value));
}

bool kvw_redis_wire_open(struct kvw_redis_wire *w, const struct sockaddr *address, socklen_t len,
	int epoll, void *tag)
{
	struct epoll_event event = {
		.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, .data.ptr = tag};

	*w = (struct kvw_redis_wire){.fd = -1, .sent = w->sent, .received = w->received};
	w->fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (w->fd < 0)
		return fail_wire(w, errno);
	tune(w->fd, address->sa_family);
	if (connect(w->fd, address, len) != 0 && errno != EINPROGRESS && errno != EINTR)
		return fail_wire(w, errno);
	if (epoll_ctl(epoll, EPOLL_CTL_ADD, w->fd, &event) != 0)
		return fail_wire(w, errno);
	return true;
}

enum kvw_redis_wire_go kvw_redis_wire_connected(struct kvw_redis_wire *w)
{
	int error = 0;
	socklen_t len = sizeof(error);

	if (!w->writable)
		return KVW_REDIS_WIRE_WAIT;
	if (getsockopt(w->fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
		error = errno;
	if (error == 0)
		return KVW_REDIS_WIRE_GO;
	(void)fail_wire(w, error);
	return KVW_REDIS_WIRE_FAILED;
}

void kvw_redis_wire_event(struct kvw_redis_wire *w, uint32_t events)
{
	if (events & (EPOLLERR | EPOLLHUP | EPOLLRDHUP))
		w->ending = true;
	if (events & (EPOLLIN | EPOLLERR | EPOLLHUP | EPOLLRDHUP))
		w->readable = true;
	if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
		w->writable = true;
}

ssize_t kvw_redis_wire_send(struct kvw_redis_wire *w, const struct iovec *pieces, size_t count)
{
	struct msghdr message = {.msg_iov = (struct iovec *)pieces, .msg_iovlen = count};
	ssize_t n;

	if (w->ssl != NULL)
		return kvw_redis_wire_tls_send(w, pieces, count);
	if (!w->writable)
		return 0;
	do
		n = sendmsg(w->fd, &message, MSG_NOSIGNAL);
	while (n < 0 && errno == EINTR);
	if (n >= 0) {
		w->sent += (uint64_t)n;
		return n;
	}
	if (errno != EAGAIN && errno != ENOBUFS) {
		(void)fail_wire(w, errno);
		return -1;
	}
	w->writable = false;
	return 0;
}

static size_t bytes_of(const struct iovec *pieces, size_t count)
{
	size_t bytes = 0;

	for (size_t i = 0; i < count; i++)
		bytes += pieces[i].iov_len;
	return bytes;
}

ssize_t kvw_redis_wire_receive(struct kvw_redis_wire *w, const struct iovec *pieces, size_t count)
{
	struct msghdr message = {.msg_iov = (struct iovec *)pieces, .msg_iovlen = count};
	ssize_t n;

	if (w->ssl != NULL)
		return kvw_redis_wire_tls_receive(w, pieces, count);
	if (!w->readable)
		return 0;
	do
		n = recvmsg(w->fd, &message, 0);
	while (n < 0 && errno == EINTR);
	if (n > 0) {
		/* a short read means that the socket is empty; further bytes cause a new edge */
		if (!w->ending && (size_t)n < bytes_of(pieces, count))
			w->readable = false;
		w->received += (uint64_t)n;
		return n;
	}
	if (n < 0 && errno == EAGAIN) {
		w->readable = false;
		return 0;
	}
	if (n == 0) {
		snprintf(w->why, sizeof(w->why), "closed by the server");
		w->failed = true;
	} else {
		(void)fail_wire(w, errno);
	}
	return -1;
}

void kvw_redis_wire_close(struct kvw_redis_wire *w)
{
	if (w->ssl != NULL)
		kvw_redis_wire_tls_close(w);
	if (w->fd >= 0)
		close(w->fd);
	w->fd = -1;
	w->readable = w->writable = w->blocked = false;
}
