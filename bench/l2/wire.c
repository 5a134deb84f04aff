/*
 * wire.c - sockets of the programs of this folder.
 */
#include "bench/l2/wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bench/l2/spent.h"

int kvb_connect(const char *host, uint16_t port, bool blocking)
{
	struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(port)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), yes = 1;

	if (inet_pton(AF_INET, host, &to.sin_addr) != 1)
		kvb_fail("%s: not an IPv4 address", host);
	if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof(to)) != 0)
		kvb_fail("connecting to %s:%u: %s", host, port, strerror(errno));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
	if (!blocking && fcntl(fd, F_SETFL, O_NONBLOCK) != 0)
		kvb_fail("O_NONBLOCK: %s", strerror(errno));
	return fd;
}

int kvb_listen(uint16_t *port)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t length = sizeof(at);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof(at)) != 0 || listen(fd, 8) != 0 ||
		getsockname(fd, (struct sockaddr *)&at, &length) != 0)
		kvb_fail("listening: %s", strerror(errno));
	*port = ntohs(at.sin_port);
	return fd;
}

void kvb_send_all(int fd, struct iovec *pieces, size_t count)
{
	while (count > 0) {
		struct msghdr message = {.msg_iov = pieces, .msg_iovlen = count};
		ssize_t sent = sendmsg(fd, &message, MSG_NOSIGNAL);

		if (sent < 0 && errno != EINTR)
			kvb_fail("sending: %s", strerror(errno));
		for (size_t left = sent > 0 ? (size_t)sent : 0; count > 0;) {
			if (left < pieces->iov_len) {
				pieces->iov_base = (char *)pieces->iov_base + left;
				pieces->iov_len -= left;
				break;
			}
			left -= pieces->iov_len;
			pieces++;
			count--;
		}
	}
}
