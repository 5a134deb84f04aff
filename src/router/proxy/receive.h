/*
 * receive.h - what a client's connection brings: bytes, its end, time that passed.
 */
#ifndef KVW_RECEIVE_H
#define KVW_RECEIVE_H

#include "proxy/client.h"

/* Takes an accepted socket, counted by kvw_shared_connection_take. On failure it is closed. */
void kvw_receive_client_take(struct kvw_loop *loop, int fd, const struct sockaddr *peer);

/* Ends the connection now, and its exchange. reset: by RST, so that a cut answer cannot look
 * whole. */
void kvw_receive_drop(struct kvw_client *client, bool reset);

#endif
