/*
 * sim_zmq.h - watches a ZeroMQ socket in a libevent loop.
 *
 * ZeroMQ's descriptor is edge-triggered and only shows that something may have changed, and a call
 * on the socket may consume that event. So code that sends on a watched socket outside of its
 * callback has to call kvb_zmq_poke() afterwards, and the callback runs until there is nothing left
 * to read.
 */
#ifndef KVB_SIM_ZMQ_H
#define KVB_SIM_ZMQ_H

#include <stdbool.h>

struct event;
struct event_base;

/* Reads one message. Returns false if there was none. Must not stop the watch. */
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
void kvb_zmq_unwatch(struct kvb_zmq_watch *watch); /* to be called before the socket is closed */
void kvb_zmq_poke(struct kvb_zmq_watch *watch);

#endif
