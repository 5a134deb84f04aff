/*
 * receive.h - handles the events of a client's connection: bytes, its end, timers.
 */
#ifndef KVW_RECEIVE_H
#define KVW_RECEIVE_H

#include "proxy/client.h"

/* Takes an accepted socket, counted by kvw_shared_connection_take. A failure closes the socket. */
void kvw_receive_client_take(struct kvw_loop *loop, int fd, const struct sockaddr *peer);

/* Ends the connection now, and its exchange. reset: by RST, so that a cut answer cannot look
 * complete. */
void kvw_receive_drop(struct kvw_client *client, bool reset);

#endif
