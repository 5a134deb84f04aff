/* reactor.c - the smallest event loop that can drive a benchmark: epoll and nothing else. */
#include "bench/load/reactor.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"

enum kvw_err kvb_reactor_init(struct kvb_reactor *reactor)
{
	int fd = epoll_create1(EPOLL_CLOEXEC);

	if (fd < 0)
		return KVW_EIO;
	*reactor = (struct kvb_reactor){.epoll_fd = fd};
	return KVW_OK;
}

enum kvw_err kvb_reactor_add(
	struct kvb_reactor *reactor, struct kvb_source *source, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = source};

	if (epoll_ctl(reactor->epoll_fd, EPOLL_CTL_ADD, source->fd, &event) < 0)
		return KVW_EIO;
	return KVW_OK;
}

void kvb_reactor_retire(struct kvb_reactor *reactor, struct kvb_source *source)
{
	if (source->retired)
		return;
	close(source->fd); /* also leaves the epoll set */
	source->fd = -1;
	source->retired = true;
	source->next_dead = reactor->dead;
	reactor->dead = source;
}

void kvb_reactor_bury(struct kvb_reactor *reactor)
{
	while (reactor->dead != NULL) {
		struct kvb_source *source = reactor->dead;

		reactor->dead = source->next_dead;
		source->destroy(source);
	}
}

static int wait_events(
	struct kvb_reactor *reactor, struct epoll_event *events, int room, int64_t timeout_ns)
{
	struct timespec limit = {
		.tv_sec = timeout_ns / KVW_NS_PER_S, .tv_nsec = timeout_ns % KVW_NS_PER_S};

	if (timeout_ns <= 0)
		return epoll_wait(reactor->epoll_fd, events, room, timeout_ns < 0 ? -1 : 0);
	return epoll_pwait2(reactor->epoll_fd, events, room, &limit, NULL);
}

void kvb_reactor_turn(struct kvb_reactor *reactor, int64_t timeout_ns)
{
	struct epoll_event events[128];
	int count = wait_events(reactor, events, 128, timeout_ns);

	for (int i = 0; i < count; i++) {
		struct kvb_source *source = events[i].data.ptr;

		if (!source->retired)
			source->ready(source, events[i].events);
	}
	kvb_reactor_bury(reactor);
}

void kvb_reactor_finish(struct kvb_reactor *reactor)
{
	kvb_reactor_bury(reactor);
	close(reactor->epoll_fd);
	reactor->epoll_fd = -1;
}

static int tcp_socket(void)
{
	int on = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);

	if (fd >= 0)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return fd;
}

static int refuse(int fd)
{
	int cause = errno;

	close(fd);
	errno = cause;
	return -1;
}

int kvb_connect(const char *host, uint16_t port, const char *source_address)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
	struct sockaddr_in from = {.sin_family = AF_INET};
	int on = 1, fd;

	if (inet_pton(AF_INET, host, &to.sin_addr) != 1 ||
		(source_address && inet_pton(AF_INET, source_address, &from.sin_addr) != 1)) {
		errno = EINVAL;
		return -1;
	}
	fd = tcp_socket();
	if (fd < 0)
		return -1;
	if (source_address != NULL) {
		setsockopt(fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof(on));
		if (bind(fd, (struct sockaddr *)&from, sizeof(from)) < 0)
			return refuse(fd);
	}
	if (connect(fd, (struct sockaddr *)&to, sizeof(to)) < 0 && errno != EINPROGRESS)
		return refuse(fd);
	return fd;
}

int kvb_listen(const char *host, uint16_t *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(*port)};
	socklen_t len = sizeof(at);
	int on = 1, fd;

	if (inet_pton(AF_INET, host, &at.sin_addr) != 1) {
		errno = EINVAL;
		return -1;
	}
	fd = tcp_socket();
	if (fd < 0)
		return -1;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, (struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, 4096) < 0 ||
		getsockname(fd, (struct sockaddr *)&at, &len) < 0)
		return refuse(fd);
	*port = ntohs(at.sin_port);
	return fd;
}
