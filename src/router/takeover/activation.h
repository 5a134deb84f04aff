/*
 * activation.h - listening sockets that the service manager hands to the process it starts.
 *
 * Threads: the main thread, before others read the environment.
 */
#ifndef KVW_TAKEOVER_ACTIVATION_H
#define KVW_TAKEOVER_ACTIVATION_H

#include "server/sockets.h"

/* Puts what $LISTEN_FDS, $LISTEN_PID and $LISTEN_FDNAMES speak of into the set, and unsets them.
 * Descriptors that are no listening sockets are closed, with a warning. */
void kvw_activation_take(struct kvw_sockets *sockets);

#endif
