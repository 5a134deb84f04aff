/*
 * gates.h - keeps the waiting requests of a loop in gates, one for each model or group, and updates
 * the gates when requests were sent.
 *
 * Threads: an event loop's own.
 */
#ifndef KVW_GATES_H
#define KVW_GATES_H

#include "admission/gate.h"
#include "base/clock.h"

struct kvw_exchange;
struct kvw_loop;
struct kvw_model;

/* The gates of a loop. Zeroed: no gate was made yet. */
struct kvw_gates {
	struct kvw_gate **items; /* gates by group or model (gates.c); NULL: not used yet */
	size_t room;
	size_t waiting;          /* requests in all of them */
	int64_t turned_ns;       /* time of the last pass over the gates */
	int64_t faded_ns;        /* time of the last pass over gates without waiting requests */
	int64_t counted_ns;      /* time of the last count of programs */
	int64_t aged_ns;         /* time of the last search for the oldest waiting request */
	struct kvw_cost *costs;  /* room for the costs of explain; [KVW_MAX_WORKERS] */
	struct kvw_outlooks *outlooks; /* outlooks of all items */
};

/* Sets x->admission.gate to the gate of the exchange's group or, without a group, of its model.
 * False: no memory. */
bool kvw_gates_enter(struct kvw_exchange *x) KVW_MUST_CHECK;
/* Leaves the gate at the exchange's end. */
void kvw_gates_exit(struct kvw_exchange *x);
/* Frees gates that no request has reached for KVW_GATES_IDLE_NS, with their learned values. */
#define KVW_GATES_IDLE_NS (600 * KVW_NS_PER_S)
void kvw_gates_shed(struct kvw_loop *loop);
void kvw_gates_finish(struct kvw_gates *gates); /* nothing waits */

/* Returns whether this kind of request waits at a gate at all. */
bool kvw_gates_want(const struct kvw_exchange *x);

/* Notes that the strategy picked a worker. */
void kvw_gates_picked(struct kvw_exchange *x);
void kvw_gates_first_token(struct kvw_exchange *x);
/* Notes that a piece of the stream came gap_ns after the piece before. */
void kvw_gates_token(struct kvw_exchange *x, int64_t gap_ns);
/* Notes the end of the attempt, at any stage. */
void kvw_gates_ended(struct kvw_exchange *x);

/* Notes that the request was taken out of its gate. */
void kvw_gates_out(struct kvw_exchange *x);
/* Ends the exchange's wait; the caller writes the state. */
void kvw_gates_leave(struct kvw_exchange *x);

#endif
