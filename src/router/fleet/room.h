/*
 * room.h - how many prompt tokens in flight fit a worker's KV memory, learned from its metrics.
 *
 * A worker states the size of its KV memory and how much of it its running requests use. The memory
 * per prompt token in flight is no constant: answers grow behind the prompts (more than one), and
 * running requests share prefixes (less). It changes slowly, while use and load change with every
 * request. So a page of metrics teaches this quotient alone,
 *
 *     q = tokens in use by running requests / prompt tokens of the requests that run,
 *
 * and the room in prompt tokens is (size - what requests of others use) / q. The tokens in flight
 * there, and how long a request keeps its part, are kvway's own knowledge (kvway/load.h), so that a
 * page which is seconds old makes no worker look full or empty. If a worker does not state its
 * running requests, q stays 1; without a size there is no room to learn.
 *
 * Requests in flight that wait in the engine, preempted ones among them, have no memory. The engine
 * counts them but does not name them, so they are taken to be of the mean length.
 *
 * Threads: the control thread's. No clock, no I/O.
 */
#ifndef KVW_ROOM_H
#define KVW_ROOM_H

#include <stdint.h>

/* Learned numbers of one worker; zeroed: nothing is learned. */
struct kvw_room {
	double each; /* q; 0: no page has shown it yet */
};

/* A page's numbers of one worker, and kvway's own numbers of it at that moment. */
struct kvw_room_page {
	uint64_t capacity_tokens;    /* usable; 0: unknown */
	double usage; /* share of the KV memory that running requests use, 0 to 1; -1: unknown */
	double running, waiting;     /* requests in the engine; -1: unknown */
	double foreign_running, foreign_waiting; /* foreign ones among these */
	double context;              /* prompt tokens of kvway's requests in flight */
};

/* Learns from a page. Returns how many prompt tokens in flight fit, > 0; INFINITY: unknown. */
double kvw_room_read(struct kvw_room *room, const struct kvw_room_page *page);

#endif
