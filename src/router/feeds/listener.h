/*
 * listener.h - an address at which engines connect, whose socket a new kvway can get from the one
 * before.
 *
 * libzmq would bind the address by itself, and then no other process could have it as long as this
 * one lives.
 * So the socket is ours: adopted or bound here, and given to libzmq (ZMQ_USE_FD).
 */
#ifndef KVW_FEED_LISTENER_H
#define KVW_FEED_LISTENER_H

#include <stdbool.h>

#include "server/sockets.h"

/* The listening socket for tcp://HOST:PORT, or -1: libzmq is to bind the address, and will name its
 * fault; such a socket is not handed on. sockets: NULL allowed, then always -1. The main thread. */
int kvw_listener_open(struct kvw_sockets *sockets, const char *endpoint, bool ipv6);

/* Binds a ZeroMQ socket; takes fd when it is not negative, also where it fails.
 * False: errno is zmq_errno(). */
bool kvw_listener_give(void *socket, const char *endpoint, int fd) KVW_MUST_CHECK;

#endif
