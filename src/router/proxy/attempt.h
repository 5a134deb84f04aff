/*
 * attempt.h - one worker asked once.
 *
 * An exchange is what the client sees; an attempt is what a worker is asked for it. The exchange
 * owns one at a time: it begins with a choice (steps/lease.c) and ends in kvw_attempt_end, however
 * it ends. Between two attempts, and after the last, worker and decision stay readable for log and
 * metrics.
 */
#ifndef KVW_ATTEMPT_H
#define KVW_ATTEMPT_H

#include "base/block.h"
#include "fleet/link.h"
#include "http/body.h"
#include "kvway/load.h"
#include "kvway/route.h"
#include "proxy/opening.h"

struct kvw_exchange;

/* What speaks for a worker that failed. */
enum kvw_excuse {
	KVW_EXCUSE_NONE,
	KVW_EXCUSE_REFUSED, /* it said that it cannot serve: the request has broken nothing */
	KVW_EXCUSE_BUSY,    /* it computes nothing now: no fault at all */
	KVW_EXCUSE_FULL,    /* it takes no more requests now (busy.h): no fault either */
	/* it has not what is asked for, which another may have: no fault at all */
	KVW_EXCUSE_LACKS,
	KVW_EXCUSE_DOWN,    /* its probes found that out: the answer itself says nothing */
};

/* Why an attempt failed. Zeroed: it has not. */
struct kvw_failure {
	const char *why; /* for users; static, or as long as the link. NULL: it has not failed */
	/* the timeout that passed while its worker was waited for; NULL: none */
	const char *timed_out;
	bool left;             /* for another worker that can be asked, although it timed out */
	enum kvw_excuse excuse;
};

/* Part of its exchange; zeroed with it. */
struct kvw_attempt {
	struct kvw_worker *worker;
	struct kvw_decision decision; /* why this worker */
	struct kvw_lease lease;       /* its share of the worker's load */
	bool decided;                 /* decision and worker are set */
	bool picked;                  /* the strategy's done() is still owed for decision */
	bool decoding;                /* counted in the gauge of answers being generated */
	bool trial;                   /* of an ejected worker: a grade is owed */
	enum kvw_grade graded;        /* how the worker was graded by it so far */
	bool awaited;                 /* counted among those that wait for the worker's engine */
	bool puts_to_sleep;           /* the worker is barred until it is known whether it does */
	int64_t picked_ns;            /* monotonic */

	/* --- to the worker --- */
	struct kvw_link *link;        /* NULL: none, or given back */
	struct kvw_block *head;       /* request head as the worker gets it; NULL: not built */
	size_t head_sent;             /* bytes of it */
	struct kvw_cursor cursor;     /* next byte of the request's body to send */
	uint64_t body_sent;           /* raw bytes */
	uint64_t written;             /* bytes written to the present link */
	bool rank_sent;               /* its head has X-data-parallel-rank (rank.h) ... */
	int64_t rank_number;          /* ... with this number */

	/* --- from the worker --- */
	bool answered;                /* the present link brought a byte */
	bool keep_alive;              /* the worker allows another request on it */
	struct kvw_block *partial;    /* the answer's head so far, if it came in pieces */
	size_t partial_from;          /* where the search for its end goes on */
	struct kvw_body answer;       /* reader of the answer's body */
	struct kvw_opening opening;   /* of the answer, until its first token */
	struct kvw_held held;

	struct kvw_failure failure;   /* kvw_exchange_advance has to deal with it */
	bool suspect;                 /* the request may be what broke the worker */
	bool paid;                    /* kvw_attempt_pay_repeat has paid for the next attempt */
};

/* Notes that the worker failed. The first failure counts. */
static inline void kvw_attempt_failed(struct kvw_attempt *a, const char *why)
{
	if (a->failure.why == NULL)
		a->failure.why = why;
}

/* The same, with what speaks for it. */
static inline void kvw_attempt_excused(
	struct kvw_attempt *a, enum kvw_excuse excuse, const char *why)
{
	a->failure.excuse = excuse;
	kvw_attempt_failed(a, why);
}

/* The same: that timeout has passed. */
static inline void kvw_attempt_timed_out(
	struct kvw_attempt *a, const char *timeout, const char *why)
{
	a->failure.timed_out = timeout;
	kvw_attempt_failed(a, why);
}

/* Grades the worker by this attempt; why: for the log if it is bad. A good grade may be followed by
 * a bad one; after that, no other counts. */
void kvw_attempt_grade(struct kvw_exchange *x, enum kvw_grade grade, const char *why);

/* From now on the attempt waits for the worker's engine, or does not. */
void kvw_attempt_await(struct kvw_exchange *x, bool awaited);

/* Pays for one repeat on another worker, once per attempt. False: retry.budget is used up. */
bool kvw_attempt_pay_repeat(struct kvw_exchange *x);

/* A request that puts its worker to sleep goes to it: from now on no other does. */
void kvw_attempt_puts_to_sleep(struct kvw_exchange *x);

/* The answer's head is there, or there will be none: does the worker sleep, has it been woken? */
void kvw_attempt_note_sleep(struct kvw_exchange *x);

/* Ends the present attempt, if there is one: closes its link (unless the caller released it
 * before), releases the lease, reports the outcome to the strategy, frees heads. The one place
 * where this happens, on every way out. completed: the answer was passed on whole. */
void kvw_attempt_end(struct kvw_exchange *x, bool completed);

#endif
