/*
 * arrivals.h - calls a function at given moments, however late the loop is.
 *
 * This is needed for open-loop load: arrival n is due at start + when(n), even if earlier requests
 * have not ended. Arrivals that are overdue follow each other at once, or with a pause between them
 * if one is set, and are passed the time when they were due.
 */
#ifndef KVB_ARRIVALS_H
#define KVB_ARRIVALS_H

#include <stdint.h>

struct event;
struct event_base;

struct kvb_arrivals {
	struct event *timer; /* owned */
	int64_t start_ns;
	uint64_t next, total;
	/* Returns the offset of arrival n from the start, in ns; called once for each n, in
	 * order. */
	int64_t (*when)(void *arg, uint64_t n);
	void (*arrive)(void *arg, uint64_t n, int64_t due_ns);
	void *arg;
	int64_t pause_ns; /* least time between two calls; 0: none */
	int64_t next_offset_ns;
	int64_t not_before_ns; /* clock at which the pause ends */
};

/* The caller sets when, arrive, arg and total. arrive is first called by the loop, not by this
 * function. */
void kvb_arrivals_begin(struct kvb_arrivals *arrivals, struct event_base *base);
void kvb_arrivals_finish(struct kvb_arrivals *arrivals);

#endif
