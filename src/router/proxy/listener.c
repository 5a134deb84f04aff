/*
 * listener.c - accepting clients, also when descriptors or connections run out.
 *
 * A process without a free descriptor cannot accept, and the waiting connection would wake the loop
 * for ever. One descriptor is therefore kept in reserve: it is given up, the connection accepted and
 * closed, and the reserve taken again.
 */
#include "proxy/listener.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "base/log.h"
#include "proxy/receive.h"

#define ACCEPTS_AT_ONCE 64
#define BACKLOG         4096

/* "host:port", "[v6]:port" or ":port" into host and port. */
static bool split_address(const char *address, char *host, size_t host_size, const char **port)
{
	const char *colon = strrchr(address, ':');
	size_t len;

	if (colon == NULL)
		return false;
	*port = colon + 1;
	len = (size_t)(colon - address);
	if (len >= 2 && address[0] == '[' && address[len - 1] == ']') {
		address++;
		len -= 2;
	}
	if (len >= host_size)
		return false;
	memcpy(host, address, len);
	host[len] = '\0';
	return true;
}

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

/* first: no other socket may listen there yet. SO_REUSEPORT alone would let two routers share a port in silence,
 * so a socket without it has to be bound once. */
static int listen_on(const struct addrinfo *info, bool first)
{
	int fd = first ? bound_socket(info, false) : -1, one = 1;

	if (first && fd < 0)
		return -1;
	if (fd >= 0)
		close(fd);
	fd = bound_socket(info, true);
	if (fd < 0)
		return -1;
	/* Accepted sockets inherit it. */
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	return listen(fd, BACKLOG) == 0 ? fd : close_failed(fd);
}

enum kvw_err kvw_listener_open(
	const char *address, bool first, FILE *errors, int *fd, char *bound, size_t bound_size)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	struct addrinfo *found = NULL;
	struct sockaddr_storage name;
	socklen_t name_len = sizeof(name);
	char host[256], text_host[64], text_port[8];
	const char *port;
	int rc;

	if (!split_address(address, host, sizeof(host), &port)) {
		fprintf(errors, "kvway: listen: %s is not host:port\n", address);
		return KVW_EINVAL;
	}
	rc = getaddrinfo(host[0] == '\0' ? NULL : host, port, &hints, &found);
	if (rc != 0) {
		fprintf(errors, "kvway: listen: cannot resolve %s: %s\n", address, gai_strerror(rc));
		return KVW_EIO;
	}
	*fd = listen_on(found, first);
	freeaddrinfo(found);
	if (*fd < 0) {
		fprintf(errors, "kvway: listen: cannot listen on %s: %s\n", address, strerror(errno));
		return KVW_EIO;
	}
	if (getsockname(*fd, (struct sockaddr *)&name, &name_len) == 0 &&
		getnameinfo((struct sockaddr *)&name, name_len, text_host, sizeof(text_host), text_port,
			sizeof(text_port), NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		(void)snprintf(bound, bound_size, strchr(text_host, ':') ? "[%s]:%s" : "%s:%s",
			text_host, text_port);
	return KVW_OK;
}

static void refuse(struct kvw_loop *loop, int fd)
{
	static const char answer[] = "HTTP/1.1 503 Service Unavailable\r\n"
				     "content-type: application/json\r\nretry-after: 1\r\n"
				     "connection: close\r\ncontent-length: 110\r\n\r\n"
				     "{\"error\":{\"message\":\"limits.connections is reached\","
				     "\"type\":\"ServiceUnavailableError\",\"param\":null,\"code\":503}}";

	if (loop->tls == NULL)
		(void)!write(fd, answer, sizeof(answer) - 1);
	close(fd);
	kvw_metrics_add(loop->metrics, KVW_COUNT_CONNECTIONS_REFUSED, 1);
}

/* No descriptor left: take one connection off the queue and drop it. */
static void shed(struct kvw_loop *loop)
{
	int fd;

	if (loop->spare_fd >= 0)
		close(loop->spare_fd);
	fd = accept4(loop->listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd >= 0)
		refuse(loop, fd);
	loop->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
}

void kvw_listener_event(struct kvw_io *io)
{
	struct kvw_loop *loop =
		(struct kvw_loop *)((char *)io - offsetof(struct kvw_loop, listen_io));

	loop->now_ns = kvw_clock_ns();
	for (int i = 0; i < ACCEPTS_AT_ONCE; i++) {
		struct sockaddr_storage peer;
		socklen_t len = sizeof(peer);
		int fd = accept4(loop->listen_fd, (struct sockaddr *)&peer, &len,
			SOCK_NONBLOCK | SOCK_CLOEXEC);

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE)
				shed(loop);
			return;
		}
		if (!kvw_shared_connection_take(loop->shared)) {
			refuse(loop, fd);
			continue;
		}
		kvw_receive_client_take(loop, fd, (struct sockaddr *)&peer);
	}
}
