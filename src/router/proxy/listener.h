/*
 * listener.h - accepts clients of a loop, within limits.connections.
 */
#ifndef KVW_LISTENER_H
#define KVW_LISTENER_H

#include "server/acceptor.h"

struct kvw_loop;

/* One listening socket of a loop. */
struct kvw_listener {
	struct kvw_acceptor acceptor; /* first */
	struct kvw_loop *loop;
};

/* Gives the loop these sockets, which it then owns, even if the call fails. Called before
 * kvw_listeners_watch. */
enum kvw_err kvw_listeners_init(struct kvw_loop *loop, const int *fds, size_t count) KVW_MUST_CHECK;
enum kvw_err kvw_listeners_watch(struct kvw_loop *loop) KVW_MUST_CHECK;
/* Accepts the clients that have arrived. */
void kvw_listeners_run(struct kvw_loop *loop);
void kvw_listeners_tick(struct kvw_loop *loop);
/* Closes the sockets. A second call does nothing. */
void kvw_listeners_stop(struct kvw_loop *loop);
void kvw_listeners_finish(struct kvw_loop *loop);

#endif
