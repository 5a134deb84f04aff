/*
 * listener.h - how a loop takes clients in, within limits.connections.
 */
#ifndef KVW_LISTENER_H
#define KVW_LISTENER_H

#include "server/acceptor.h"

/* Of the acceptor of every loop. */
extern const struct kvw_acceptor_ops kvw_listener_ops;

#endif
