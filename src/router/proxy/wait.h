/*
 * wait.h - the wait of a request on its way to a worker: one state for all kinds, and one way out
 * of it.
 *
 * A waiting request is in WAITING; x->wait has the kind, the begin and the limit of the wait. Each
 * kind of waiting is defined by the file that begins it: "newer model lists" (lacking.c), "a worker
 * of its model" (waking.c), "room at a worker" (admit.c), "the prompt's tokens" (prepare.c), "the
 * text of /metrics" (local.c), "its prompt to be prefilled" (leg.c). While it waits a request has
 * no lease and asks no worker, except in the last kind, in which it has the decoder's lease and
 * asks the prefiller. The access log has the kind's name, errors have its text.
 *
 * Threads: those of the exchange's loop.
 */
#ifndef KVW_WAIT_H
#define KVW_WAIT_H

#include <stdint.h>

struct kvw_exchange;
struct kvw_exchange_list;
struct kvw_loop;

/* How a wait ends. */
enum kvw_waited {
	KVW_WAITED,         /* the awaited event happened */
	KVW_WAITED_EXPIRED, /* the wait's limit, or the request's own time limit, has passed */
	KVW_WAITED_LEFT,    /* the client left, or is answered for another reason */
};

/* A kind of wait. Static. */
struct kvw_wait_kind {
	const char *name; /* a word for the access log */
	const char *text; /* for errors: "the request waited for TEXT" */
	uint8_t timer;    /* the timer that limits the wait (enum kvw_timer_kind) */
	/* Returns the list of requests in this kind of wait, in order of arrival; NULL: there is no
	 * list. */
	struct kvw_exchange_list *(*list)(struct kvw_loop *loop);
	/* Releases what the wait holds. NULL: it holds nothing. */
	void (*ended)(struct kvw_exchange *x, enum kvw_waited how);
	/* Called after `ended`, in ROUTING, if the wait's limit has passed: answers, or lets the
	 * request go on. */
	void (*expired)(struct kvw_exchange *x);
};

/* Part of its exchange; zeroed with it. */
struct kvw_waiting {
	const struct kvw_wait_kind *kind; /* NULL: the request does not wait */
	int64_t since_ns;
	/* limit of the wait; 0: only the client and the request's other timers limit it */
	int64_t until_ns;
	/* sums over all waits of the request: */
	const struct kvw_wait_kind *longest; /* NULL: the request has not waited */
	int64_t longest_ns, total_ns;
};

/* Makes x, in ROUTING or READ_HEAD, wait from now on. until_ns: limit of the wait; 0: none of its
 * own. */
void kvw_wait_begin(struct kvw_exchange *x, const struct kvw_wait_kind *kind, int64_t until_ns);

/* Ends the wait of x, in WAITING: x goes to ROUTING, unless it has ended already. */
void kvw_wait_end(struct kvw_exchange *x, enum kvw_waited how);

/* Handles the end of x->timer, which limits the wait. */
void kvw_wait_expire(struct kvw_exchange *x);

#endif
