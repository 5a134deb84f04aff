/*
 * queue.h - waiting requests in the order of sending, and the choice of those to give up.
 *
 * The order: more important classes first, within a class by arrival. If the latest moment of
 * sending decided, short prompts, whose promises end earlier, would go before long ones that
 * arrived with them, and the long prompt would then delay every running answer on its worker. Sent
 * first, the long prompt delays no answers, and the short ones go to other workers or after it,
 * still in time.
 *
 * If not all requests can be in time, the queue gives up those with the most work for their value,
 * by Moore and Hodgson's rule. kvw_queue_plan adds up the work in order, and whenever a request
 * would be sent too late it gives up the request of the highest price so far (work over value) in
 * the least important class so far. Requests that were given up stay in the queue: they are sent if
 * there is time after all.
 *
 * The queue is a sorted array with room at both ends. A place is found by binary search, and the
 * shorter side of the array moves to make or close a gap, since most requests are added at the end
 * and leave from the front.
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
	KVW_LATE_SENT,   /* it is sent all the same, at once */
	KVW_LATE_IN_TURN /* it keeps its place */
};

/* One request. Its owner must not move it in memory while it waits. */
struct kvw_waiter {
	int64_t came_ns;
	/* Promised time from came_ns to the first token; INT64_MAX: no promise. */
	int64_t first_ns;
	int64_t until_ns;   /* time at which the request is refused if it still waits */
	int64_t work_ns;    /* predicted prefill on the chosen worker */
	int64_t start_ns;   /* latest time of sending; <= until_ns */
	/* what keeping the promise is worth: 1, or more if a refusal would lose more */
	double value;
	uint32_t worker;    /* id of the chosen worker */
	uint8_t class;
	bool promised;      /* the request is refused if its promise cannot be kept */
	enum kvw_late late;
	bool given_up;      /* the last plan has given the request up */
	bool aged; /* `class` was made one better than the request's own, after a long wait */
	/* The request is in a queue, and only kvw_queue_promote may change its class. */
	bool waits;
};

struct kvw_queue {
	struct kvw_waiter **items; /* the waiting requests in order, somewhere within `slots` */
	struct kvw_waiter **slots; /* [room] */
	struct kvw_waiter **heap;  /* space for kvw_queue_plan; [room] */
	size_t count, room;
	size_t given_up;           /* number of waiting requests that were given up */
};

/* Returns whether a is sent before b; neither is if they are equal. */
static inline bool kvw_waiter_before(const struct kvw_waiter *a, const struct kvw_waiter *b)
{
	return a->class != b->class ? a->class < b->class : a->came_ns < b->came_ns;
}

void kvw_queue_finish(struct kvw_queue *queue); /* must be empty */

/* Adds a request. KVW_ENOMEM: it was not added. */
enum kvw_err kvw_queue_add(struct kvw_queue *queue, struct kvw_waiter *waiter) KVW_MUST_CHECK;
/* Removes a request; no effect if it does not wait. */
void kvw_queue_remove(struct kvw_queue *queue, struct kvw_waiter *waiter);
/* Makes the class of a waiting request one better, so that it passes as few others as possible. */
void kvw_queue_promote(struct kvw_queue *queue, struct kvw_waiter *waiter);

/* Returns the price of a request: ns of prefill over its value. */
static inline double kvw_waiter_price(const struct kvw_waiter *waiter)
{
	return (double)waiter->work_ns / waiter->value;
}

/* Decides for each waiting request whether it is given up. rate: predicted ns of prefill that the
 * workers do in one ns; ahead_ns: work that the workers have before these requests. */
void kvw_queue_plan(struct kvw_queue *queue, int64_t now_ns, double rate, double ahead_ns);

#endif
