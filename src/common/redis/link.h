/*
 * link.h - one connection to one server: TCP or a Unix socket, TLS if wanted, login, and commands
 * pipelined over it.
 *
 * 	CLOSED -> CONNECTING -> SECURING (TLS) -> LOGIN -> READY
 * 	   ^___________|____________|______________|_________|
 *
 * A link has no callbacks. Its owner (server.c) hands it the events of its socket, lets it work
 * (kvw_redis_link_turn), takes the answered commands from a list, and looks at `state`: on CLOSED,
 * `why` says what ended it, and the commands without an answer are there for the owner to take back
 * (kvw_redis_link_take). Between submit and that, a command belongs to the link.
 *
 * A reply is complete or does not count: a command whose reply came in part is given back like one
 * that has none, whatever was received into its segments.
 *
 * Threads: one.
 */
#ifndef KVW_REDIS_LINK_H
#define KVW_REDIS_LINK_H

#include <openssl/ssl.h>
#include <sys/socket.h>

#include "redis/login.h"

enum kvw_redis_link_state {
	KVW_REDIS_LINK_CLOSED,
	KVW_REDIS_LINK_CONNECTING,
	KVW_REDIS_LINK_SECURING,
	KVW_REDIS_LINK_LOGIN,
	KVW_REDIS_LINK_READY,
};

/* Where to, and how. Borrowed during open, but for `tls` and `login`. */
struct kvw_redis_link_target {
	const struct sockaddr *address;
	socklen_t address_len;
	const char *host; /* what the certificate must name; not for a Unix socket */
	SSL_CTX *tls;     /* NULL: plain */
	const struct kvw_redis_link_login
		*login; /* never NULL; its texts too are borrowed that long */
};

struct kvw_redis_link; /* link.c */

struct kvw_redis_link *kvw_redis_link_create(int epoll, void *owner);
void kvw_redis_link_destroy(
	struct kvw_redis_link *l); /* it is closed and has no commands; NULL is allowed */

/* Begins; the state is CONNECTING or, if that failed at once, CLOSED. give_up_ns: connecting, TLS
 * and login together must have ended by then. */
void kvw_redis_link_open(
	struct kvw_redis_link *l, const struct kvw_redis_link_target *target, int64_t give_up_ns);

/* Takes a command, whatever the state but CLOSED; sent once the link is READY. */
void kvw_redis_link_submit(struct kvw_redis_link *l, struct kvw_redis_command *command);

/* What epoll said of the socket. Does nothing by itself. */
void kvw_redis_link_event(struct kvw_redis_link *l, uint32_t events);

/* Sends and receives what is possible without waiting. Commands with a reply go to `answered`.
 * Returns true if there may be more to do at once. */
bool kvw_redis_link_turn(struct kvw_redis_link *l, struct kvw_redis_commands *answered);

/* Takes a command back whose deadline has passed. If any of it has been sent, the link is closed
 * for it. */
void kvw_redis_link_cancel(struct kvw_redis_link *l, struct kvw_redis_command *command);

void kvw_redis_link_close(struct kvw_redis_link *l, const char *why);

/* Commands without an answer, oldest first. */
const struct kvw_redis_commands *kvw_redis_link_commands(const struct kvw_redis_link *l);
struct kvw_redis_command *kvw_redis_link_take(
	struct kvw_redis_link *l); /* the first, of a CLOSED link; or NULL */

enum kvw_redis_link_state kvw_redis_link_state(const struct kvw_redis_link *l);
const char *kvw_redis_link_why(
	const struct kvw_redis_link *l); /* what ended it, for people; no secrets */
bool kvw_redis_link_refused(const struct kvw_redis_link *l); /* ... and that was a refused login */
uint64_t kvw_redis_link_bytes(const struct kvw_redis_link *l); /* of the commands that it has */
int64_t kvw_redis_link_give_up_ns(
	const struct kvw_redis_link *l); /* while neither CLOSED nor READY */
const char *kvw_redis_link_info(
	const struct kvw_redis_link *l); /* the server's INFO; "" if it gave none */
void *kvw_redis_link_owner(const struct kvw_redis_link *l);

/* Bytes so far, over all its lives. */
uint64_t kvw_redis_link_sent_bytes(const struct kvw_redis_link *l);
uint64_t kvw_redis_link_received_bytes(const struct kvw_redis_link *l);

#endif
