/*
 * activation.h - takes the listening sockets that a service manager passes to kvway at its start.
 *
 * Threads: the main thread, before other threads read the environment.
 */
#ifndef KVW_TAKEOVER_ACTIVATION_H
#define KVW_TAKEOVER_ACTIVATION_H

#include "server/sockets.h"

/* Puts the sockets of $LISTEN_FDS, $LISTEN_PID and $LISTEN_FDNAMES into the set, and unsets these
 * variables. Descriptors that are no listening sockets are closed, with a warning. */
void kvw_activation_take(struct kvw_sockets *sockets);

#endif
