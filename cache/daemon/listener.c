/*
 * listener.c - see listener.h.
 */
#include "daemon/listener.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "settings/address.h"

#define BACKLOG 1024

static int listen_on(const struct addrinfo *info)
{
	int fd = socket(info->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
	int saved;

	if (fd < 0)
		return -1;
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	/* Accepted sockets inherit it. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	if (bind(fd, info->ai_addr, info->ai_addrlen) == 0 && listen(fd, BACKLOG) == 0)
		return fd;
	saved = errno;
	close(fd);
	errno = saved;
	return -1;
}

static void print_bound(int fd, char bound[KVT_BOUND_BYTES])
{
	struct sockaddr_storage name;
	socklen_t len = sizeof(name);
	char host[64], port[8];

	bound[0] = '\0';
	if (getsockname(fd, (struct sockaddr *)&name, &len) == 0 &&
		getnameinfo((struct sockaddr *)&name, len, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		snprintf(bound, KVT_BOUND_BYTES, strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s",
			host, port);
}

enum kvt_status kvt_listener_open(
	const char *address, char *why, int *fd, char bound[KVT_BOUND_BYTES])
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	struct addrinfo *found = NULL;
	struct kvw_address parts;
	char host[KVW_ADDRESS_MAX_HOST + 1], port[8];
	int rc;

	if (kvw_address_split(kvw_slice_of(address), &parts) != KVW_ADDRESS_OK) {
		snprintf(why, KVT_REASON_BYTES, "%.60s is not HOST:PORT", address);
		return KVT_EIO;
	}
	snprintf(host, sizeof(host), "%.*s", (int)parts.host.len, parts.host.data);
	snprintf(port, sizeof(port), "%u", parts.port);
	rc = getaddrinfo(host, port, &hints, &found);
	if (rc != 0) {
		snprintf(why, KVT_REASON_BYTES, "cannot resolve %.60s: %s", address,
			gai_strerror(rc));
		return KVT_EIO;
	}
	*fd = listen_on(found);
	freeaddrinfo(found);
	if (*fd < 0) {
		snprintf(why, KVT_REASON_BYTES, "cannot listen on %.60s: %s", address,
			strerror(errno));
		return KVT_EIO;
	}
	print_bound(*fd, bound);
	return KVT_OK;
}
