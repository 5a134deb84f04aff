/*
 * listen.c - opens a listening socket for an address HOST:PORT.
 */
#include "server/listen.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "settings/address.h"

/* The kernel lowers it to net.core.somaxconn. */
#define BACKLOG     4096
#define REASON_ROOM 70 /* room in `why` for the reason, in addition to the address */

/* Closes fd, keeping errno. */
static int close_failed(int fd)
{
	int saved = errno;

	close(fd);
	errno = saved;
	return -1;
}

static int bound_socket(const struct addrinfo *info, bool shared)
{
	int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0)
		return -1;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if ((shared && setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &one, sizeof(one)) != 0) ||
		bind(fd, info->ai_addr, info->ai_addrlen) != 0)
		return close_failed(fd);
	return fd;
}

/* With SO_REUSEPORT two programs could share a port without noticing. So before the first socket
 * with it, one without it is bound and closed. */
static int listen_on(const struct addrinfo *info, enum kvw_listen_share share)
{
	int fd, one = 1;

	if (share == KVW_LISTEN_FIRST) {
		fd = bound_socket(info, false);
		if (fd < 0)
			return -1;
		close(fd);
	}
	fd = bound_socket(info, share != KVW_LISTEN_ALONE);
	if (fd < 0)
		return -1;
	/* Accepted sockets inherit it. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return listen(fd, BACKLOG) == 0 ? fd : close_failed(fd);
}

static void print_bound(int fd, char bound[KVW_LISTEN_TEXT])
{
	struct sockaddr_storage name;
	socklen_t len = sizeof(name);
	char host[64], port[8];

	bound[0] = '\0';
	if (getsockname(fd, (struct sockaddr *)&name, &len) == 0 &&
		getnameinfo((struct sockaddr *)&name, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		(void)snprintf(bound, KVW_LISTEN_TEXT,
			strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, port);
}

enum kvw_err kvw_listen(const char *address, enum kvw_listen_share share, int *fd,
	char bound[KVW_LISTEN_TEXT], char *why, size_t why_size)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	struct addrinfo *found = NULL;
	struct kvw_address parts;
	char host[KVW_ADDRESS_MAX_HOST + 1], port[8];
	int rc, opened, room = (int)why_size - REASON_ROOM;

	if (kvw_address_split(kvw_slice_of(address), &parts) != KVW_ADDRESS_OK) {
		(void)snprintf(why, why_size, "%.*s is not HOST:PORT", room, address);
		return KVW_EINVAL;
	}
	(void)snprintf(host, sizeof(host), "%.*s", (int)parts.host.len, parts.host.data);
	(void)snprintf(port, sizeof(port), "%u", parts.port);
	rc = getaddrinfo(host, port, &hints, &found);
	if (rc != 0) {
		(void)snprintf(why, why_size, "cannot resolve %.*s: %s", room, address,
			gai_strerror(rc));
		return KVW_EIO;
	}
	opened = listen_on(found, share);
	freeaddrinfo(found);
	if (opened < 0) {
		(void)snprintf(why, why_size, "cannot listen on %.*s: %s", room, address,
			strerror(errno));
		return KVW_EIO;
	}
	print_bound(opened, bound);
	*fd = opened;
	return KVW_OK;
}
