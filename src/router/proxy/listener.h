/*
 * listener.h - a loop's listening socket, and accepting clients from it.
 */
#ifndef KVW_LISTENER_H
#define KVW_LISTENER_H

#include <stdio.h>

#include "base/io.h"
#include "kvway/err.h"

/* Opens a listening socket for `address`. first: the address must be free; the other loops' sockets
 * share it. bound: host:port really bound. KVW_EIO: `errors` says why. */
enum kvw_err kvw_listener_open(const char *address, bool first, FILE *errors, int *fd, char *bound,
	size_t bound_size) KVW_MUST_CHECK;

/* Callback of the loop's listen_io: accepts what waits. */
void kvw_listener_event(struct kvw_io *io);

#endif
