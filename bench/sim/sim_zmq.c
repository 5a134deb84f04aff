/*
 * sim_zmq.c - a ZeroMQ socket in a libevent loop. A turn reads at most BURST messages, then lets
 * the loop turn.
 */
#include <event2/event.h>
#include <zmq.h>

#include "bench/sim/sim_zmq.h"

#define BURST 32

static void on_event(evutil_socket_t fd, short what, void *arg)
{
	struct kvb_zmq_watch *watch = arg;

	(void)fd;
	(void)what;
	for (int i = 0; i < BURST; i++)
		if (!watch->fn(watch->user))
			return;
	kvb_zmq_poke(watch);
}

bool kvb_zmq_watch(struct kvb_zmq_watch *watch, struct event_base *base, void *socket,
	kvb_zmq_fn *fn, void *user)
{
	size_t len = sizeof(int);
	int fd;

	*watch = (struct kvb_zmq_watch){.socket = socket, .fn = fn, .user = user};
	if (zmq_getsockopt(socket, ZMQ_FD, &fd, &len) != 0)
		return false;
	watch->ev = event_new(base, fd, EV_READ | EV_PERSIST, on_event, watch);
	if (watch->ev == NULL || event_add(watch->ev, NULL) != 0)
		return false;
	kvb_zmq_poke(watch);
	return true;
}

void kvb_zmq_unwatch(struct kvb_zmq_watch *watch)
{
	if (watch->ev != NULL)
		event_free(watch->ev);
	watch->ev = NULL;
}

void kvb_zmq_poke(struct kvb_zmq_watch *watch)
{
	if (watch->ev != NULL)
		event_active(watch->ev, EV_READ, 0);
}
