/* events_call.c - see events_call.h. */
#include "bench/load/events_call.h"

#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define PATIENCE_S 10

int kvb_call_connect(const struct sockaddr_in *to)
{
	struct timeval patience = {PATIENCE_S, 0};
	int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		return -1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
	if (connect(fd, (const struct sockaddr *)to, sizeof(*to)) == 0)
		return fd;
	close(fd);
	return -1;
}

bool kvb_call_send(int fd, const char *data, size_t len)
{
	while (len > 0) {
		ssize_t n = send(fd, data, len, MSG_NOSIGNAL);

		if (n <= 0)
			return false;
		data += n;
		len -= (size_t)n;
	}
	return true;
}

bool kvb_call_answer(int fd, char *answer, size_t room)
{
	size_t have = 0, whole = 0;

	while (whole == 0 || have < whole) {
		ssize_t n = have < room - 1 ? recv(fd, answer + have, room - 1 - have, 0) : 0;
		char *end, *field;

		if (n <= 0)
			return false;
		have += (size_t)n;
		answer[have] = '\0';
		end = whole == 0 ? strstr(answer, "\r\n\r\n") : NULL;
		if (end == NULL)
			continue;
		field = strcasestr(answer, "\r\ncontent-length:");
		if (field == NULL || field > end)
			return false;
		whole = (size_t)(end + 4 - answer) + strtoul(field + 17, NULL, 10);
	}
	return strncmp(answer, "HTTP/1.1 200", 12) == 0;
}
