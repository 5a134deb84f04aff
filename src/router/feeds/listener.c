/*
 * listener.c - a listening socket for engines, which a new kvway can inherit from the former one.
 */
#include "feeds/listener.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <zmq.h>

#include "base/log.h"
#include "server/listen.h"

int kvw_listener_open(struct kvw_sockets *sockets, const char *endpoint, bool ipv6)
{
	char address[300], bound[KVW_LISTEN_TEXT], why[200];
	int fd;

	if (sockets == NULL || strncmp(endpoint, "tcp://", 6) != 0)
		return -1;
	endpoint += 6;
	/* In libzmq's meaning. */
	if (strncmp(endpoint, "*:", 2) == 0)
		(void)snprintf(
			address, sizeof(address), "%s:%s", ipv6 ? "[::]" : "0.0.0.0", endpoint + 2);
	else
		(void)snprintf(address, sizeof(address), "%s", endpoint);
	if (kvw_sockets_adopt(sockets, KVW_SOCKET_EVENTS, address, &fd, 1) == 1)
		return fd;
	if (kvw_listen(address, KVW_LISTEN_ALONE, &fd, bound, why, sizeof(why)) != KVW_OK) {
		kvw_debug(
			"feed", "not bound by kvway itself endpoint=%s why=\"%s\"", endpoint, why);
		return -1;
	}
	kvw_sockets_note(sockets, KVW_SOCKET_EVENTS, fd);
	return fd;
}

bool kvw_listener_give(void *socket, const char *endpoint, int fd)
{
	int failed;

	if (fd >= 0 && zmq_setsockopt(socket, ZMQ_USE_FD, &fd, sizeof(fd)) != 0) {
		failed = zmq_errno();
		close(fd);
		errno = failed;
		return false;
	}
	return zmq_bind(socket, endpoint) == 0; /* libzmq closes a socket that it cannot use */
}
