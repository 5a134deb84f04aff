/*
 * room.h - how many prompt tokens in flight fit a worker's KV memory, learned from its metrics.
 *
 * A worker states the size of its KV memory and how much of it its running requests use. What one
 * prompt token in flight takes of it is no constant: answers grow behind the prompts (more than
 * one), and running requests share prefixes (less). It changes slowly, while use and load change
 * with every request. So a page of metrics teaches this quotient alone,
 *
 *     q = tokens in use by running requests / prompt tokens of the requests that run,
 *
 * and the room in prompt tokens is (size - what requests of others use) / q. What is in flight
 * there and how long a request keeps its part is kvway's own knowledge (kvway/load.h), so that a
 * page which is seconds old makes no worker look full or empty. Of a worker that does not state
 * what runs there, q stays 1; without a size there is no room to learn.
 *
 * Of the requests in flight those that wait in the engine have no memory, preempted ones among
 * them. The engine counts them; which they are kvway does not know, so they are taken to be of the
 * mean length.
 *
 * Threads: the control thread's. No clock, no I/O.
 */
#ifndef KVW_ROOM_H
#define KVW_ROOM_H

#include <stdint.h>

/* What kvway has learned of one worker; zeroed: nothing. */
struct kvw_room {
	double each; /* q; 0: no page has shown it yet */
};

/* What a page of metrics says, and what is known of the worker at that moment. */
struct kvw_room_page {
	uint64_t capacity_tokens;    /* usable; 0: unknown */
	double usage;                /* of it by running requests, 0 to 1; -1: unknown */
	double running, waiting;     /* requests in the engine; -1: unknown */
	double foreign_running, foreign_waiting; /* of these, requests that are not kvway's */
	double context;              /* prompt tokens of kvway's requests in flight */
};

/* Learns from a page. Returns the prompt tokens in flight that fit, > 0; INFINITY: unknown. */
double kvw_room_read(struct kvw_room *room, const struct kvw_room_page *page);

#endif
