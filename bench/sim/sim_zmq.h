/*
 * sim_zmq.h - a ZeroMQ socket in a libevent loop.
 *
 * ZeroMQ's descriptor is edge-triggered and says only that something may have changed, and using
 * the socket may use that sign up. So code that sends on a watched socket outside of its callback
 * has to call kvb_zmq_poke() afterwards, and the callback runs until there is nothing left to read.
 */
#ifndef KVB_SIM_ZMQ_H
#define KVB_SIM_ZMQ_H

#include <stdbool.h>

struct event;
struct event_base;

/* Reads one message; false: there was none. May not stop the watch. */
typedef bool kvb_zmq_fn(void *user);

struct kvb_zmq_watch {
	struct event *ev; /* NULL: not watched */
	void *socket;     /* borrowed */
	kvb_zmq_fn *fn;
	void *user;
};

/* False without memory. */
bool kvb_zmq_watch(struct kvb_zmq_watch *watch, struct event_base *base, void *socket,
	kvb_zmq_fn *fn, void *user);
void kvb_zmq_unwatch(struct kvb_zmq_watch *watch); /* before the socket is closed */
void kvb_zmq_poke(struct kvb_zmq_watch *watch);

#endif
