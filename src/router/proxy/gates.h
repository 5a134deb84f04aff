/*
 * gates.h - the requests of a loop that wait, by model, and what their gates learn of those that
 * were sent.
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

/* The gates of a loop; zeroed: none yet. */
struct kvw_gates {
	struct kvw_gate **items; /* by group or model (gates.c); NULL: not used yet */
	size_t room;
	size_t waiting;          /* requests in all of them */
	int64_t turned_ns;       /* when they were asked last */
	int64_t faded_ns;        /* when gates without waiting requests were asked last */
	int64_t counted_ns;      /* when programs were counted */
	int64_t aged_ns;         /* when the oldest that waits was looked for */
	struct kvw_cost *costs;  /* of explain; [KVW_MAX_WORKERS] */
	struct kvw_outlooks *outlooks; /* of all items */
};

/* Sets x->admission.gate to that of the exchange's group or, without one, its model. False: no
 * memory. */
bool kvw_gates_enter(struct kvw_exchange *x) KVW_MUST_CHECK;
/* The exchange ends. */
void kvw_gates_exit(struct kvw_exchange *x);
/* Frees gates that nothing has come to for KVW_GATES_IDLE_NS, with what they have learned. */
#define KVW_GATES_IDLE_NS (600 * KVW_NS_PER_S)
void kvw_gates_shed(struct kvw_loop *loop);
void kvw_gates_finish(struct kvw_gates *gates); /* nothing waits */

/* Does such a request wait at all? */
bool kvw_gates_want(const struct kvw_exchange *x);

/* A worker was picked by the strategy. */
void kvw_gates_picked(struct kvw_exchange *x);
void kvw_gates_first_token(struct kvw_exchange *x);
/* A piece of the stream came gap_ns after the one before it. */
void kvw_gates_token(struct kvw_exchange *x, int64_t gap_ns);
/* The attempt has ended, wherever it was. */
void kvw_gates_ended(struct kvw_exchange *x);

/* It was taken out of its gate. */
void kvw_gates_out(struct kvw_exchange *x);
/* The exchange waits no longer; the caller writes its state. */
void kvw_gates_leave(struct kvw_exchange *x);

#endif
