/*
 * queue.h - waiting requests in the order of sending, and the choice of those to give up.
 *
 * The order: the more important class first, within a class in order of arrival. If the latest
 * moment of sending decided, short prompts, which have earlier promises, would go before long ones
 * that arrived with them, and a long one would then delay every answer on its worker. Sent first,
 * it delays no answers, and the short ones go to other workers or after it, in time as well.
 *
 * If not all can be in time, the queue gives up requests with the most work for their value, by
 * Moore and Hodgson's rule. kvw_queue_plan adds up the work in order, and whenever a request would
 * be sent too late it gives up the request of the highest price so far (work over value) in the
 * least important class so far. Requests that were given up stay in the queue: they are sent if
 * there is time after all.
 *
 * The queue is a sorted array with room at both ends. A place is found by binary search; the
 * shorter side moves to make room for a request or to close its gap: most are added at the end and
 * leave from the front.
 *
 * Threads: a queue belongs to one event loop.
 */
#ifndef KVW_QUEUE_H
#define KVW_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/err.h"

#define KVW_CLASSES 8 /* 0: the most important */

/* The fate of a request that can no longer be sent in time. */
enum kvw_late {
	KVW_LATE_NEVER,  /* it is refused */
	KVW_LATE_SENT,   /* it is sent anyway, at once */
	KVW_LATE_IN_TURN /* it keeps its place */
};

/* One request. Its owner keeps it where it is while it waits. */
struct kvw_waiter {
	int64_t came_ns;
	/* Promised time from came_ns to the first token; INT64_MAX: no promise. */
	int64_t first_ns;
	int64_t until_ns;   /* refused if it still waits then */
	int64_t work_ns;    /* predicted prefill on its worker */
	int64_t start_ns;   /* latest time of sending; <= until_ns */
	double value;       /* of keeping its promise: 1, or more if more would be lost */
	uint32_t worker;    /* id of its worker */
	uint8_t class;
	bool promised;      /* refused if the promise cannot be kept */
	enum kvw_late late;
	bool given_up;      /* by the last plan */
	bool aged;          /* `class` is one better than its own, after a long wait */
	/* In a queue: only kvw_queue_promote changes class. */
	bool waits;
};

struct kvw_queue {
	struct kvw_waiter **items; /* in order; somewhere in `slots` */
	struct kvw_waiter **slots; /* [room] */
	struct kvw_waiter **heap;  /* of kvw_queue_plan; [room] */
	size_t count, room;
	size_t given_up;           /* number of waiting ones given up */
};

/* Whether a comes before b; equal ones have no order. */
static inline bool kvw_waiter_before(const struct kvw_waiter *a, const struct kvw_waiter *b)
{
	return a->class != b->class ? a->class < b->class : a->came_ns < b->came_ns;
}

void kvw_queue_finish(struct kvw_queue *queue); /* must be empty */

/* Adds a waiter. KVW_ENOMEM: not added. */
enum kvw_err kvw_queue_add(struct kvw_queue *queue, struct kvw_waiter *waiter) KVW_MUST_CHECK;
/* Removes a waiter; does nothing if it does not wait. */
void kvw_queue_remove(struct kvw_queue *queue, struct kvw_waiter *waiter);
/* Makes the class of a waiting request one better. The request passes as few others as possible. */
void kvw_queue_promote(struct kvw_queue *queue, struct kvw_waiter *waiter);

/* Price of a request: ns of prefill over its value. */
static inline double kvw_waiter_price(const struct kvw_waiter *waiter)
{
	return (double)waiter->work_ns / waiter->value;
}

/* Sets given_up of all waiters. rate: predicted ns of prefill that the workers do in one ns;
 * ahead_ns: the workers' work before these. */
void kvw_queue_plan(struct kvw_queue *queue, int64_t now_ns, double rate, double ahead_ns);

#endif
