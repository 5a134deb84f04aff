/* peer.c - detects that the other end of a TCP connection has vanished. */
#include "base/peer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#define PROBES 3 /* probes begin when no byte has come for half of the time */

static void set_option(int fd, int level, int name, int value)
{
	(void)setsockopt(fd, level, name, &value, sizeof(value));
}

static int at_least_1(int64_t value)
{
	return value < 1 ? 1 : (int)value;
}

void kvw_peer_watch(int fd, int64_t gone_ms, bool user_timeout)
{
	int64_t seconds = (gone_ms + 999) / 1000, probing;
	int idle, interval;

	if (gone_ms == 0)
		return;
	idle = at_least_1(seconds / 2);
	probing = seconds - idle;
	interval = at_least_1(probing / PROBES);
	set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
	set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, idle);
	set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, interval);
	set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, at_least_1(probing / interval));
	if (user_timeout)
		set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)gone_ms);
}

bool kvw_peer_vanished(int fd, int64_t gone_ms)
{
	struct tcp_info info;
	socklen_t len = sizeof(info);

	if (gone_ms == 0 || getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &len) != 0)
		return false;
	/* A living peer that keeps its window closed may have one probe in flight. */
	return info.tcpi_last_ack_recv >= gone_ms &&
	       (info.tcpi_retransmits > 0 || info.tcpi_probes > 1);
}
