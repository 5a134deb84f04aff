/*
 * link.h - one connection to one server: TCP or a Unix socket, TLS if wanted, login, and commands
 * pipelined over it.
 *
 * 	CLOSED -> CONNECTING -> SECURING (TLS) -> LOGIN -> READY
 * 	   ^___________|____________|______________|_________|
 *
 * A link has no callbacks. Its owner (server.c) passes it the events of its socket, runs it
 * (kvw_redis_link_turn), takes the answered commands from a list, and checks `state`: when CLOSED,
 * `why` has the cause, and the owner takes back the commands without an answer
 * (kvw_redis_link_take). From submit until it is answered or taken back, a command belongs to the
 * link.
 *
 * A partial reply does not count: its command is returned like one without a reply, whatever was
 * received into its segments.
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

/* Address and way of a connection. Borrowed during open, except `tls` and `login`. */
struct kvw_redis_link_target {
	const struct sockaddr *address;
	socklen_t address_len;
	const char *host; /* name for the certificate check; not for a Unix socket */
	SSL_CTX *tls;     /* NULL: plain */
	const struct kvw_redis_link_login
		*login; /* never NULL; borrowed with its texts, until destroy */
};

struct kvw_redis_link; /* link.c */

struct kvw_redis_link *kvw_redis_link_create(int epoll, void *owner);
void kvw_redis_link_destroy(
	struct kvw_redis_link *l); /* l must be closed and have no commands; NULL is allowed */

/* Begins to connect; the state is CONNECTING or, after an immediate failure, CLOSED. give_up_ns:
 * deadline of connecting, TLS and login together. */
void kvw_redis_link_open(
	struct kvw_redis_link *l, const struct kvw_redis_link_target *target, int64_t give_up_ns);

/* Takes a command in any state but CLOSED; the link sends it once it is READY. */
void kvw_redis_link_submit(struct kvw_redis_link *l, struct kvw_redis_command *command);

/* Records the socket's events from epoll, for the next turn. */
void kvw_redis_link_event(struct kvw_redis_link *l, uint32_t events);

/* Sends and receives without waiting. Commands with a reply go to `answered`. Returns true if there
 * may be more to do at once. */
bool kvw_redis_link_turn(struct kvw_redis_link *l, struct kvw_redis_commands *answered);

/* Takes back a command whose deadline has passed. If any byte of it has been sent, the link is
 * closed. */
void kvw_redis_link_cancel(struct kvw_redis_link *l, struct kvw_redis_command *command);

void kvw_redis_link_close(struct kvw_redis_link *l, const char *why);

/* Commands without an answer, oldest first. */
const struct kvw_redis_commands *kvw_redis_link_commands(const struct kvw_redis_link *l);
struct kvw_redis_command *kvw_redis_link_take(
	struct kvw_redis_link *l); /* the first command of a CLOSED link; or NULL */

enum kvw_redis_link_state kvw_redis_link_state(const struct kvw_redis_link *l);
const char *kvw_redis_link_why(
	const struct kvw_redis_link *l); /* cause of its end, for people; no secrets */
bool kvw_redis_link_refused(const struct kvw_redis_link *l); /* ... whether a refused login did */
uint64_t kvw_redis_link_bytes(const struct kvw_redis_link *l); /* bytes of its commands */
int64_t kvw_redis_link_give_up_ns(
	const struct kvw_redis_link *l); /* while neither CLOSED nor READY */
const char *kvw_redis_link_info(
	const struct kvw_redis_link *l); /* the server's INFO; "" if it gave none */
void *kvw_redis_link_owner(const struct kvw_redis_link *l);

/* Bytes sent or received over all its connections. */
uint64_t kvw_redis_link_sent_bytes(const struct kvw_redis_link *l);
uint64_t kvw_redis_link_received_bytes(const struct kvw_redis_link *l);

#endif
