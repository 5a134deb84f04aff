/*
 * wait.h - what a request waits for on its way to a worker: one state, and one way out of it.
 *
 * A request that waits is in WAITING; x->wait says for what, since when and how long it may. Each
 * kind of waiting is defined by the file that begins it: "newer model lists" (lacking.c), "a worker
 * of its model" (waking.c), "room at a worker" (admit.c), "the prompt's tokens" (prepare.c), "the
 * text of /metrics" (local.c), "its prompt to be prefilled" (leg.c). No lease is taken and no worker
 * asked meanwhile, but for the last: its decoder is leased, its prefiller asked. The access log has
 * the kind's name, errors have its text.
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
	KVW_WAITED,         /* what it waited for is here */
	KVW_WAITED_EXPIRED, /* it was not in time, or the request's own time is over */
	KVW_WAITED_LEFT,    /* the client left, or is answered for another reason */
};

/* A kind of waiting. Static. */
struct kvw_wait_kind {
	const char *name; /* a word for the access log */
	const char *text; /* for errors: "the request waited for TEXT" */
	uint8_t timer;    /* enum kvw_timer_kind of its limit */
	/* The list of those that wait so, in the order in which they came; NULL: there is none. */
	struct kvw_exchange_list *(*list)(struct kvw_loop *loop);
	/* Releases what is held for it. NULL: nothing is. */
	void (*ended)(struct kvw_exchange *x, enum kvw_waited how);
	/* After that, where its limit has passed, in ROUTING: answers, or lets it go on. */
	void (*expired)(struct kvw_exchange *x);
};

/* Part of its exchange; zeroed with it. */
struct kvw_waiting {
	const struct kvw_wait_kind *kind; /* NULL: it does not wait */
	int64_t since_ns;
	int64_t until_ns; /* 0: as long as its client and its other timers let it */
	/* Of all its waits: */
	const struct kvw_wait_kind *longest; /* NULL: it has not waited */
	int64_t longest_ns, total_ns;
};

/* x, which is in ROUTING or READ_HEAD, waits from now on. until_ns: 0 without a limit of its
 * own. */
void kvw_wait_begin(struct kvw_exchange *x, const struct kvw_wait_kind *kind, int64_t until_ns);

/* x, which is in WAITING, is in ROUTING, or has ended and stays so. */
void kvw_wait_end(struct kvw_exchange *x, enum kvw_waited how);

/* x->timer, by which its wait is limited, has run out. */
void kvw_wait_expire(struct kvw_exchange *x);

#endif
