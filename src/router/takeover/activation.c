/*
 * activation.c - takes listening sockets over from systemd.
 *
 * systemd passes descriptors 3, 4, ... and their names, separated by colons. The names `listen` and
 * `admin` say what a socket is for; other names mean nothing, since a socket is found by its
 * address.
 */
#include "takeover/activation.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define FIRST_FD 3

static enum kvw_socket_use use_of(const char *names, int nth)
{
	enum kvw_socket_use use;
	char name[32];

	while (names != NULL && nth-- > 0) {
		names = strchr(names, ':');
		names = names == NULL ? NULL : names + 1;
	}
	if (names == NULL)
		return KVW_SOCKET_ANY;
	(void)snprintf(name, sizeof(name), "%.*s", (int)strcspn(names, ":"), names);
	use = kvw_socket_use_of(name);
	return use == KVW_SOCKET_USES ? KVW_SOCKET_ANY : use;
}

void kvw_activation_take(struct kvw_sockets *sockets)
{
	const char *pid = getenv("LISTEN_PID"), *fds = getenv("LISTEN_FDS");
	const char *names = getenv("LISTEN_FDNAMES");
	long count = fds == NULL ? 0 : strtol(fds, NULL, 10);

	if (pid != NULL && strtoll(pid, NULL, 10) == getpid() && count > 0 &&
		count <= KVW_SOCKETS_MOST) {
		for (int i = 0; i < (int)count; i++)
			if (kvw_sockets_offer_take(sockets, use_of(names, i), FIRST_FD + i) !=
				KVW_OK)
				kvw_warn("takeover", "not a listening socket, closed fd=%d",
					FIRST_FD + i);
	}
	(void)unsetenv("LISTEN_PID");
	(void)unsetenv("LISTEN_FDS");
	(void)unsetenv("LISTEN_FDNAMES");
}
