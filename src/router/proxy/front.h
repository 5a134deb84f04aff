/*
 * front.h - what stands in front of kvway: proxies that are trusted to say from which client a
 * connection or a request comes (`proxies.trusted`).
 *
 * Without any, fields such as X-Forwarded-For pass as they come, and the client's address is the
 * connection's. With some,
 *
 *   - such a proxy may send the PROXY protocol's header (`proxies.protocol`): the client that it
 *     names is the connection's, and is trusted in its turn only if it is listed, too;
 *   - of a request that comes from one, X-Forwarded-For says which client it is for: its last
 *     address that is not listed. Its fields about clients reach the workers;
 *   - of any other client's request these fields are dropped: nothing that it invents reaches a
 *     worker.
 */
#ifndef KVW_FRONT_H
#define KVW_FRONT_H

#include "base/network.h"
#include "config/config.h"
#include "http/head.h"

struct kvw_client;

/* Read once, at the start. */
struct kvw_front {
	struct kvw_network *trusted; /* [count], owned */
	size_t count;
};

enum kvw_err kvw_front_init(
	struct kvw_front *front, const struct kvw_config *config) KVW_MUST_CHECK;
void kvw_front_finish(struct kvw_front *front);

/* text[KVW_CLIENT_ADDRESS] = the address, without a port. */
void kvw_front_format(char *text, const struct sockaddr *address);

/* What the connection's header of the PROXY protocol says. */
enum kvw_fronted {
	KVW_FRONTED_MORE, /* it has not come whole */
	KVW_FRONTED_OVER, /* it was read, or there is none: the client's own bytes follow */
	KVW_FRONTED_BAD,  /* the connection is of no use */
};

/* Reads it off the socket of a client of state PROXY; sets the client's address. */
enum kvw_fronted kvw_front_read(struct kvw_client *client);

/* Of a trusted peer's request: the client that X-Forwarded-For names, in text[KVW_CLIENT_ADDRESS];
 * "": none. */
void kvw_front_client(const struct kvw_front *front, const struct kvw_head *head, char *text);

/* Has fields that say something about clients left out of what is forwarded. */
void kvw_front_hide(struct kvw_head *head);

#endif
