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

/* Where and how to connect. Borrowed during open, except `tls` and `login`. */
struct kvw_redis_link_target {
	const struct sockaddr *address;
	socklen_t address_len;
	/* host name for the check of the certificate; not used for a Unix socket */
	const char *host;
	SSL_CTX *tls;     /* NULL: plain */
	const struct kvw_redis_link_login
		*login; /* never NULL; borrowed, with its texts, until destroy */
};

struct kvw_redis_link; /* link.c */

struct kvw_redis_link *kvw_redis_link_create(int epoll, void *owner);
void kvw_redis_link_destroy(
	/* the link must be closed and have no commands; NULL is allowed */
	struct kvw_redis_link *l);

/* Begins to connect. The state is then CONNECTING or, if that failed at once, CLOSED. give_up_ns:
 * deadline for connecting, TLS and login together. */
void kvw_redis_link_open(
	struct kvw_redis_link *l, const struct kvw_redis_link_target *target, int64_t give_up_ns);

/* Takes a command, in any state but CLOSED; the link sends it once its state is READY. */
void kvw_redis_link_submit(struct kvw_redis_link *l, struct kvw_redis_command *command);

/* Notes epoll's events of the socket, for the next turn. */
void kvw_redis_link_event(struct kvw_redis_link *l, uint32_t events);

/* Sends and receives without waiting. Commands whose reply is complete go to `answered`. Returns
 * true if another turn may have more to do at once. */
bool kvw_redis_link_turn(struct kvw_redis_link *l, struct kvw_redis_commands *answered);

/* Takes back a command whose deadline has passed. If any byte of the command was sent, the link is
 * closed. */
void kvw_redis_link_cancel(struct kvw_redis_link *l, struct kvw_redis_command *command);

void kvw_redis_link_close(struct kvw_redis_link *l, const char *why);

/* Returns the commands without an answer, oldest first. */
const struct kvw_redis_commands *kvw_redis_link_commands(const struct kvw_redis_link *l);
struct kvw_redis_command *kvw_redis_link_take(
	/* removes and returns the first command of a CLOSED link; NULL: there is none */
	struct kvw_redis_link *l);

enum kvw_redis_link_state kvw_redis_link_state(const struct kvw_redis_link *l);
const char *kvw_redis_link_why(
	/* text for people with the cause of the link's end; has no secrets */
	const struct kvw_redis_link *l);
bool kvw_redis_link_refused(const struct kvw_redis_link *l); /* ... whether a refused login did */
uint64_t kvw_redis_link_bytes(const struct kvw_redis_link *l); /* bytes of its commands */
int64_t kvw_redis_link_give_up_ns(
	const struct kvw_redis_link *l); /* returns whether the state is neither CLOSED nor READY */
const char *kvw_redis_link_info(
	const struct kvw_redis_link *l); /* the server's reply to INFO; "" if it gave none */
void *kvw_redis_link_owner(const struct kvw_redis_link *l);

/* Returns the number of bytes sent, or received, over all connections of this link. */
uint64_t kvw_redis_link_sent_bytes(const struct kvw_redis_link *l);
uint64_t kvw_redis_link_received_bytes(const struct kvw_redis_link *l);

#endif
