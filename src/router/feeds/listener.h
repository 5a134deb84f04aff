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

/* The listening socket for tcp://HOST:PORT, or -1: libzmq has to bind the address, and reports
 * failures; such a socket cannot be inherited. sockets: NULL allowed, then always -1. The main
 * thread. */
int kvw_listener_open(struct kvw_sockets *sockets, const char *endpoint, bool ipv6);

/* Binds a ZeroMQ socket; takes fd if it is not negative, also on failure. False: errno is
 * zmq_errno(). */
bool kvw_listener_give(void *socket, const char *endpoint, int fd) KVW_MUST_CHECK;

#endif
