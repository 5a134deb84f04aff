/*
 * front.h - proxies in front of kvway that are trusted to name the client of a connection or a
 * request (`proxies.trusted`).
 *
 * Without trusted proxies, fields such as X-Forwarded-For pass unchanged, and the client's address
 * is the connection's. With trusted proxies,
 *
 *   - such a proxy may send the PROXY protocol's header (`proxies.protocol`): the connection then
 *     belongs to the client that the header names, which is trusted in its turn only if listed,
 *     too;
 *   - X-Forwarded-For of a request from a trusted proxy names its client: the last address that is
 *     not listed. The proxy's fields about clients reach the workers;
 *   - kvway drops these fields from any other client's request: no invented field reaches a worker.
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

/* Writes an address without its port to text[KVW_CLIENT_ADDRESS]. */
void kvw_front_format(char *text, const struct sockaddr *address);

/* Result of reading the connection's header of the PROXY protocol. */
enum kvw_fronted {
	KVW_FRONTED_MORE, /* the header has not arrived completely */
	KVW_FRONTED_OVER, /* the header was read, or there is none; the client's own bytes follow */
	KVW_FRONTED_BAD,  /* the connection must be closed */
};

/* Reads the header off the socket of a client of state PROXY; sets the client's address. */
enum kvw_fronted kvw_front_read(struct kvw_client *client);

/* Finds the client in the field X-Forwarded-For of a request from a trusted peer, and writes its
 * address to text[KVW_CLIENT_ADDRESS]; "": the field names none. */
void kvw_front_client(const struct kvw_front *front, const struct kvw_head *head, char *text);

/* Leaves fields about clients out of the forwarded head. */
void kvw_front_hide(struct kvw_head *head);

#endif
