/*
 * sockets.h - the listening sockets of a process: those that it opened, and those that another
 * process or the service manager handed to it and that it has not put to use yet.
 *
 * A room that wants to listen asks here first. What was handed on is found by its address: the
 * socket must be bound to the very address and port that the configuration names. Port 0 fits any
 * port of a socket that had the same use.
 *
 * The set owns a descriptor until kvw_sockets_adopt gives it away. From then on it only remembers
 * the number, so that the socket can be handed on to the next process; the room that has it may
 * close it once kvw_sockets_used is not called any more.
 *
 * Threads: one, the main thread.
 */
#ifndef KVW_SOCKETS_H
#define KVW_SOCKETS_H

#include <stdbool.h>
#include <stddef.h>

#include "kvway/err.h"

#define KVW_SOCKETS_MOST 1024 /* of a set */
#define KVW_SOCKET_TEXT  128  /* room for an address: HOST:PORT, or the path of a Unix socket */

/* What it is for. */
enum kvw_socket_use {
	KVW_SOCKET_CLIENTS,
	KVW_SOCKET_ADMIN,
	KVW_SOCKET_TAKEOVER, /* where the next process asks */
	KVW_SOCKET_EVENTS,   /* engines connect there to publish what their caches hold */
	KVW_SOCKET_ANY,      /* the service manager did not say */
	KVW_SOCKET_USES
};

struct kvw_socket {
	enum kvw_socket_use use;
	int fd;
	bool waiting; /* owned by the set, and no room has asked for it */
	bool handed;  /* another process had it before */
	char address[KVW_SOCKET_TEXT]; /* as bound */
};

struct kvw_sockets {
	struct kvw_socket *items; /* owned */
	size_t count, room;
};

/* "listen", "admin", ... KVW_SOCKET_USES: no such word. */
const char *kvw_socket_use_name(enum kvw_socket_use use);
enum kvw_socket_use kvw_socket_use_of(const char *name);

/* A zeroed set is empty. Closes what waits. */
void kvw_sockets_finish(struct kvw_sockets *set);

/* One that was handed to this process. Takes fd, also when it fails. KVW_EINVAL: no listening
 * stream socket; KVW_ELIMIT: too many; KVW_ENOMEM. */
enum kvw_err kvw_sockets_offer_take(
	struct kvw_sockets *set, enum kvw_socket_use use, int fd) KVW_MUST_CHECK;

/* Those that wait and are bound to `address` (HOST:PORT, or for KVW_SOCKET_TAKEOVER the path of a
 * Unix socket, as it was bound), up to `most`; fds are the caller's. Returns how many; 0: none
 * fits. Looks the host up, so it may block. */
size_t kvw_sockets_adopt(struct kvw_sockets *set, enum kvw_socket_use use, const char *address,
	int *fds, size_t most);

/* The caller opened this one itself and keeps it.
 * A failure means only that it cannot be handed on. */
void kvw_sockets_note(struct kvw_sockets *set, enum kvw_socket_use use, int fd);

/* The nth socket in use, from 0; NULL: there are no more. */
const struct kvw_socket *kvw_sockets_used(const struct kvw_sockets *set, size_t n);

/* The first that no room has asked for; NULL: there is none. */
const struct kvw_socket *kvw_sockets_waiting(const struct kvw_sockets *set);
/* Closes that one. */
void kvw_sockets_drop(struct kvw_sockets *set, const struct kvw_socket *waiting);

/* The address of a bound socket as text; "" where it has none. */
void kvw_socket_address(int fd, char text[KVW_SOCKET_TEXT]);

#endif
