/*
 * sockets.h - the listening sockets of a process: sockets that it opened, and inherited ones, from
 * another process or the service manager, that it does not use yet.
 *
 * A part of the program that wants to listen first asks the set for an inherited socket, which must
 * be bound to exactly the configured address and port. Port 0 matches any port of a socket that had
 * the same use.
 *
 * The set owns a descriptor until kvw_sockets_adopt gives it away. From then on the set only
 * remembers the number, so that the next process can inherit the socket; the new owner may close it
 * once kvw_sockets_used is not called any more.
 *
 * Threads: one, the main thread.
 */
#ifndef KVW_SOCKETS_H
#define KVW_SOCKETS_H

#include <stdbool.h>
#include <stddef.h>

#include "kvway/err.h"

#define KVW_SOCKETS_MOST 1024 /* most sockets of a set */
#define KVW_SOCKET_TEXT  128  /* room for an address: HOST:PORT, or the path of a Unix socket */

/* Use of a socket. */
enum kvw_socket_use {
	KVW_SOCKET_CLIENTS,
	KVW_SOCKET_ADMIN,
	KVW_SOCKET_TAKEOVER, /* for requests of a new process that takes over */
	KVW_SOCKET_EVENTS,   /* for engines that publish their KV events */
	KVW_SOCKET_ANY,      /* the service manager did not say what the socket is for */
	KVW_SOCKET_USES
};

struct kvw_socket {
	enum kvw_socket_use use;
	int fd;
	bool waiting; /* owned by the set, because no part has adopted it yet */
	bool handed;  /* inherited */
	char address[KVW_SOCKET_TEXT]; /* as bound */
};

struct kvw_sockets {
	struct kvw_socket *items; /* owned */
	size_t count, room;
};

/* "listen", "admin", ...; KVW_SOCKET_USES: the word is none of these. */
const char *kvw_socket_use_name(enum kvw_socket_use use);
enum kvw_socket_use kvw_socket_use_of(const char *name);

/* Closes the sockets that were not adopted. A set of all zeroes is empty. */
void kvw_sockets_finish(struct kvw_sockets *set);

/* Adds an inherited socket. Takes over fd, also on failure. KVW_EINVAL: fd is no listening stream
 * socket; KVW_ELIMIT: there are too many; KVW_ENOMEM. */
enum kvw_err kvw_sockets_offer_take(
	struct kvw_sockets *set, enum kvw_socket_use use, int fd) KVW_MUST_CHECK;

/* Gives the caller up to `most` inherited sockets that are bound to `address` (HOST:PORT, or for
 * KVW_SOCKET_TAKEOVER the path of a Unix socket, as it was bound). Returns their number; 0: none
 * matches. Resolves the host, so it may block. */
size_t kvw_sockets_adopt(struct kvw_sockets *set, enum kvw_socket_use use, const char *address,
	int *fds, size_t most);

/* Adds a socket that the caller has opened and owns, so that the next process can inherit it. A
 * failure is not reported: then the next process cannot. */
void kvw_sockets_note(struct kvw_sockets *set, enum kvw_socket_use use, int fd);

/* Returns socket number n of those in use, from 0; NULL: there are no more. */
const struct kvw_socket *kvw_sockets_used(const struct kvw_sockets *set, size_t n);

/* Returns the first inherited socket that was not adopted; NULL: there is none. */
const struct kvw_socket *kvw_sockets_waiting(const struct kvw_sockets *set);
/* Closes that socket. */
void kvw_sockets_drop(struct kvw_sockets *set, const struct kvw_socket *waiting);

/* Writes the address to which a socket is bound as text; "" if there is none. */
void kvw_socket_address(int fd, char text[KVW_SOCKET_TEXT]);

#endif
