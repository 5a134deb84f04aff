/*
 * listener.h - a listening socket for engines, which a new kvway can inherit from the former one.
 *
 * If libzmq bound the address itself, no other process could use it as long as this one lives. So
 * kvway owns the socket: it inherits or binds it, and passes it to libzmq (ZMQ_USE_FD).
 */
#ifndef KVW_FEED_LISTENER_H
#define KVW_FEED_LISTENER_H

#include <stdbool.h>

#include "server/sockets.h"

/* Returns the listening socket for tcp://HOST:PORT. -1: none was opened, and libzmq has to bind the
 * address, and reports failures; such a socket cannot be inherited. sockets: may be NULL, and then
 * the result is -1. Called by the main thread. */
int kvw_listener_open(struct kvw_sockets *sockets, const char *endpoint, bool ipv6);

/* Makes a ZeroMQ socket listen at the endpoint. Takes fd, the socket to listen on, also on failure;
 * negative: libzmq binds the endpoint itself. False: zmq_errno() has the cause. */
bool kvw_listener_give(void *socket, const char *endpoint, int fd) KVW_MUST_CHECK;

#endif
