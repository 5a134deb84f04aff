/*
 * notify.c - messages of a program to the service manager that started it (sd_notify of systemd).
 */
#include "base/notify.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"

#define STORE_MOST 64 /* most descriptors of one message; the kernel allows 253 */

/* One message, with descriptors. */
static void notify_with(const char *state, const int *fds, size_t count)
{
	union {
		struct cmsghdr head; /* for its alignment */
		char bytes[CMSG_SPACE(STORE_MOST * sizeof(int))];
	} control = {0};
	struct iovec text = {(char *)(uintptr_t)state, strlen(state)};
	struct msghdr message = {.msg_iov = &text, .msg_iovlen = 1};
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	const char *path = getenv("NOTIFY_SOCKET");
	size_t len = path != NULL ? strlen(path) : 0;
	int fd;

	/* The variable has a path, or '@' and the name of an abstract socket. */
	if (len < 2 || len >= sizeof(address.sun_path) || (path[0] != '/' && path[0] != '@'))
		return;
	memcpy(address.sun_path, path, len);
	if (path[0] == '@')
		address.sun_path[0] = '\0';
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return;
	message.msg_name = &address;
	message.msg_namelen = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
	if (count > 0) {
		message.msg_control = control.bytes;
		message.msg_controllen = CMSG_SPACE(count * sizeof(int));
		control.head.cmsg_level = SOL_SOCKET;
		control.head.cmsg_type = SCM_RIGHTS;
		control.head.cmsg_len = CMSG_LEN(count * sizeof(int));
		memcpy(CMSG_DATA(&control.head), fds, count * sizeof(int));
	}
	(void)!sendmsg(fd, &message, MSG_NOSIGNAL);
	close(fd);
}

void kvw_notify(const char *state)
{
	notify_with(state, NULL, 0);
}

void kvw_notify_store(const char *name, const int *fds, size_t count)
{
	char state[128];

	(void)snprintf(state, sizeof(state), "FDSTORE=1\nFDNAME=%s", name);
	for (size_t i = 0; i < count; i += STORE_MOST)
		notify_with(state, fds + i, count - i < STORE_MOST ? count - i : STORE_MOST);
}

void kvw_notify_reloading(void)
{
	char state[64];

	snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%lld",
		(long long)(kvw_clock_ns() / 1000));
	kvw_notify(state);
}

int64_t kvw_notify_watchdog_ns(void)
{
	const char *usec = getenv("WATCHDOG_USEC");
	const char *pid = getenv("WATCHDOG_PID");
	long long period = usec != NULL ? strtoll(usec, NULL, 10) : 0;

	if (pid != NULL && strtoll(pid, NULL, 10) != getpid())
		return 0;
	return period > 0 && period < INT64_MAX / 1000 ? period * 1000 : 0;
}
