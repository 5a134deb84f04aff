/*
 * sockets.c - keeps the list of listening sockets, and finds them by address.
 *
 * Addresses are compared as the kernel has them, not as text, so that `localhost:80` finds a socket
 * that was bound as 127.0.0.1:80. Sets are small, so look-ups are linear.
 */
#include "server/sockets.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "settings/address.h"

static const char *const use_names[KVW_SOCKET_USES] = {
	[KVW_SOCKET_CLIENTS] = "listen",
	[KVW_SOCKET_ADMIN] = "admin",
	[KVW_SOCKET_TAKEOVER] = "takeover",
	[KVW_SOCKET_EVENTS] = "events",
	[KVW_SOCKET_ANY] = "any",
};

const char *kvw_socket_use_name(enum kvw_socket_use use)
{
	return use_names[use];
}

enum kvw_socket_use kvw_socket_use_of(const char *name)
{
	int use = 0;

	while (use < KVW_SOCKET_USES && strcmp(name, use_names[use]) != 0)
		use++;
	return (enum kvw_socket_use)use;
}

void kvw_sockets_finish(struct kvw_sockets *set)
{
	for (size_t i = 0; i < set->count; i++)
		if (set->items[i].waiting)
			close(set->items[i].fd);
	free(set->items);
	*set = (struct kvw_sockets){0};
}

void kvw_socket_address(int fd, char text[KVW_SOCKET_TEXT])
{
	struct sockaddr_storage name = {0};
	const struct sockaddr_un *path = (const struct sockaddr_un *)&name;
	socklen_t len = sizeof(name);
	char host[64], port[8];

	text[0] = '\0';
	if (getsockname(fd, (struct sockaddr *)&name, &len) != 0)
		return;
	if (name.ss_family == AF_UNIX)
		(void)snprintf(
			text, KVW_SOCKET_TEXT, "%.*s", (int)sizeof(path->sun_path), path->sun_path);
	else if (getnameinfo((struct sockaddr *)&name, len, host, sizeof(host), port, sizeof(port),
			 NI_NUMERICHOST | NI_NUMERICSERV) == 0)
		(void)snprintf(text, KVW_SOCKET_TEXT,
			strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s", host, port);
}

static int option(int fd, int name)
{
	socklen_t len = sizeof(int);
	int value = -1;

	return getsockopt(fd, SOL_SOCKET, name, &value, &len) == 0 ? value : -1;
}

static struct kvw_socket *add_socket(struct kvw_sockets *set, enum kvw_socket_use use, int fd)
{
	struct kvw_socket *socket;

	if (set->count == set->room) {
		size_t room = set->room == 0 ? 16 : 2 * set->room;
		struct kvw_socket *items = realloc(set->items, room * sizeof(items[0]));

		if (items == NULL)
			return NULL;
		set->items = items;
		set->room = room;
	}
	socket = &set->items[set->count++];
	*socket = (struct kvw_socket){.use = use, .fd = fd};
	kvw_socket_address(fd, socket->address);
	return socket;
}

enum kvw_err kvw_sockets_offer_take(struct kvw_sockets *set, enum kvw_socket_use use, int fd)
{
	struct kvw_socket *socket;
	enum kvw_err err = KVW_OK;
	int flags = fcntl(fd, F_GETFL);

	if (flags < 0 || option(fd, SO_ACCEPTCONN) != 1 || option(fd, SO_TYPE) < 0)
		err = KVW_EINVAL;
	else if (set->count >= KVW_SOCKETS_MOST)
		err = KVW_ELIMIT;
	if (err != KVW_OK) {
		close(fd);
		return err;
	}
	(void)fcntl(fd, F_SETFD, FD_CLOEXEC);
	(void)fcntl(fd, F_SETFL, flags | O_NONBLOCK);
	socket = add_socket(set, use, fd);
	if (socket == NULL) {
		close(fd);
		return KVW_ENOMEM;
	}
	socket->waiting = socket->handed = true;
	return KVW_OK;
}

/* Resolves the name to its first address, which is the one that kvw_listen would bind. */
static bool resolve(const char *address, struct sockaddr_storage *out)
{
	struct addrinfo hints = {.ai_family = AF_UNSPEC,
		.ai_socktype = SOCK_STREAM,
		.ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	struct addrinfo *found = NULL;
	struct kvw_address parts;
	char host[KVW_ADDRESS_MAX_HOST + 1], port[8];

	if (kvw_address_split(kvw_slice_of(address), &parts) != KVW_ADDRESS_OK)
		return false;
	(void)snprintf(host, sizeof(host), "%.*s", (int)parts.host.len, parts.host.data);
	(void)snprintf(port, sizeof(port), "%u", parts.port);
	if (getaddrinfo(host, port, &hints, &found) != 0)
		return false;
	memset(out, 0, sizeof(*out));
	memcpy(out, found->ai_addr, found->ai_addrlen);
	freeaddrinfo(found);
	return true;
}

static uint16_t port_of(const struct sockaddr_storage *address)
{
	return address->ss_family == AF_INET6 ? ((const struct sockaddr_in6 *)address)->sin6_port
					      : ((const struct sockaddr_in *)address)->sin_port;
}

static bool same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
	const struct sockaddr_in *a4 = (const struct sockaddr_in *)a,
				 *b4 = (const struct sockaddr_in *)b;
	const struct sockaddr_in6 *a6 = (const struct sockaddr_in6 *)a,
				  *b6 = (const struct sockaddr_in6 *)b;

	if (a->ss_family != b->ss_family)
		return false;
	if (a->ss_family == AF_INET6)
		return memcmp(&a6->sin6_addr, &b6->sin6_addr, sizeof(a6->sin6_addr)) == 0 &&
		       a6->sin6_scope_id == b6->sin6_scope_id;
	return a->ss_family == AF_INET && a4->sin_addr.s_addr == b4->sin_addr.s_addr;
}

static bool fits(const struct kvw_socket *socket, enum kvw_socket_use use,
	const struct sockaddr_storage *wanted)
{
	struct sockaddr_storage bound = {0};
	socklen_t len = sizeof(bound);

	if (getsockname(socket->fd, (struct sockaddr *)&bound, &len) != 0 ||
		!same_host(&bound, wanted))
		return false;
	return port_of(wanted) == 0 ? socket->use == use : port_of(wanted) == port_of(&bound);
}

size_t kvw_sockets_adopt(struct kvw_sockets *set, enum kvw_socket_use use, const char *address,
	int *fds, size_t most)
{
	struct sockaddr_storage wanted;
	bool path = use == KVW_SOCKET_TAKEOVER;
	size_t count = 0;

	if (kvw_sockets_waiting(set) == NULL || (!path && !resolve(address, &wanted)))
		return 0;
	for (size_t i = 0; i < set->count && count < most; i++) {
		struct kvw_socket *socket = &set->items[i];

		if (!socket->waiting || !(path ? strcmp(socket->address, address) == 0
					       : fits(socket, use, &wanted)))
			continue;
		socket->waiting = false;
		socket->use = use;
		fds[count++] = socket->fd;
	}
	return count;
}

void kvw_sockets_note(struct kvw_sockets *set, enum kvw_socket_use use, int fd)
{
	if (set->count < KVW_SOCKETS_MOST)
		(void)add_socket(set, use, fd);
}

const struct kvw_socket *kvw_sockets_used(const struct kvw_sockets *set, size_t n)
{
	for (size_t i = 0; i < set->count; i++)
		if (!set->items[i].waiting && n-- == 0)
			return &set->items[i];
	return NULL;
}

const struct kvw_socket *kvw_sockets_waiting(const struct kvw_sockets *set)
{
	for (size_t i = 0; i < set->count; i++)
		if (set->items[i].waiting)
			return &set->items[i];
	return NULL;
}

void kvw_sockets_drop(struct kvw_sockets *set, const struct kvw_socket *waiting)
{
	size_t at = (size_t)(waiting - set->items);

	close(waiting->fd);
	set->count--;
	memmove(&set->items[at], &set->items[at + 1], (set->count - at) * sizeof(set->items[0]));
}
