/*
 * link.h - one connection to one server: TCP or a Unix socket, TLS if wanted, login, and commands
 * pipelined over it.
 *
 *	CLOSED -> CONNECTING -> SECURING (TLS) -> LOGIN -> READY
 *	   ^___________|____________|______________|_________|
 *
 * A link has no callbacks. Its owner (server.c) hands it the events of its socket, lets it work
 * (kvt_link_turn), takes the answered commands from a list, and looks at `state`: on CLOSED, `why`
 * says what ended it, and the commands without an answer are there for the owner to take back
 * (kvt_link_take). Between submit and that, a command belongs to the link.
 *
 * A reply is complete or does not count: a command whose reply came in part is given back like one
 * that has none, whatever was received into its segments.
 *
 * Threads: one.
 */
#ifndef KVT_LINK_H
#define KVT_LINK_H

#include <openssl/ssl.h>
#include <sys/socket.h>

#include "redis/login.h"

enum kvt_link_state {
	KVT_LINK_CLOSED,
	KVT_LINK_CONNECTING,
	KVT_LINK_SECURING,
	KVT_LINK_LOGIN,
	KVT_LINK_READY,
};

/* Where to, and how. Borrowed during open, but for `tls` and `login`. */
struct kvt_link_target {
	const struct sockaddr *address;
	socklen_t address_len;
	const char *host; /* what the certificate must name; not for a Unix socket */
	SSL_CTX *tls;     /* NULL: plain */
	const struct kvt_link_login *login; /* never NULL; its texts too are borrowed that long */
};

struct kvt_link; /* link.c */

struct kvt_link *kvt_link_create(int epoll, void *owner);
void kvt_link_destroy(struct kvt_link *l); /* it is closed and has no commands; NULL is allowed */

/* Begins; the state is CONNECTING or, if that failed at once, CLOSED. give_up_ns: connecting, TLS
 * and login together must have ended by then. */
void kvt_link_open(struct kvt_link *l, const struct kvt_link_target *target, int64_t give_up_ns);

/* Takes a command, whatever the state but CLOSED; sent once the link is READY. */
void kvt_link_submit(struct kvt_link *l, struct kvt_redis_command *command);

/* What epoll said of the socket. Does nothing by itself. */
void kvt_link_event(struct kvt_link *l, uint32_t events);

/* Sends and receives what is possible without waiting. Commands with a reply go to `answered`.
 * Returns true if there may be more to do at once. */
bool kvt_link_turn(struct kvt_link *l, struct kvt_commands *answered);

/* Takes a command back whose deadline has passed. If any of it has been sent, the link is closed for
 * it. */
void kvt_link_cancel(struct kvt_link *l, struct kvt_redis_command *command);

void kvt_link_close(struct kvt_link *l, const char *why);

/* Commands without an answer, oldest first. */
const struct kvt_commands *kvt_link_commands(const struct kvt_link *l);
struct kvt_redis_command *kvt_link_take(
	struct kvt_link *l); /* the first, of a CLOSED link; or NULL */

enum kvt_link_state kvt_link_state(const struct kvt_link *l);
const char *kvt_link_why(const struct kvt_link *l);    /* what ended it, for people; no secrets */
bool kvt_link_refused(const struct kvt_link *l);       /* ... and that was a refused login */
uint64_t kvt_link_bytes(const struct kvt_link *l);     /* of the commands that it has */
int64_t kvt_link_give_up_ns(const struct kvt_link *l); /* while neither CLOSED nor READY */
const char *kvt_link_info(const struct kvt_link *l);   /* the server's INFO; "" if it gave none */
void *kvt_link_owner(const struct kvt_link *l);

/* Bytes so far, over all its lives. */
uint64_t kvt_link_sent_bytes(const struct kvt_link *l);
uint64_t kvt_link_received_bytes(const struct kvt_link *l);

#endif
