/*
 * attempt.h - one try of an exchange at one worker.
 *
 * A client sees an exchange; a worker sees an attempt of it. The exchange owns one attempt at a
 * time, which begins with a choice (steps/lease.c) and in every case ends in kvw_attempt_end.
 * Between two attempts, and after the last one, worker and decision stay readable for log and
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

/* Reasons that excuse a worker that failed. */
enum kvw_excuse {
	KVW_EXCUSE_NONE,
	/* the worker declared that it cannot serve: the request has broken nothing */
	KVW_EXCUSE_REFUSED,
	KVW_EXCUSE_BUSY,    /* the engine computes nothing now: no fault at all */
	KVW_EXCUSE_FULL,    /* the worker takes no more requests now (busy.h): no fault either */
	/* the worker lacks the requested object, which another may have: no fault at all */
	KVW_EXCUSE_LACKS,
	KVW_EXCUSE_DOWN,    /* probes found the worker down: the answer itself says nothing */
};

/* Why an attempt failed. Zeroed: the attempt has not failed. */
struct kvw_failure {
	const char *why; /* for users; static, or as long as the link. NULL: no failure */
	/* the timeout that passed in waiting for the worker; NULL: none */
	const char *timed_out;
	bool left; /* the request left for another worker, although the attempt timed out */
	enum kvw_excuse excuse;
};

/* Part of its exchange; zeroed with it. */
struct kvw_attempt {
	struct kvw_worker *worker;
	struct kvw_decision decision; /* why this worker */
	struct kvw_lease lease;       /* the attempt's share of the worker's load */
	uint32_t sent_inflight;       /* leases of the worker once this one was taken */
	bool decided;                 /* decision and worker are set */
	bool picked;                  /* the strategy is still owed done() for the decision */
	bool decoding;                /* counted in the gauge of answers being generated */
	bool trial;                   /* try of an ejected worker: a grade is owed */
	enum kvw_grade graded;        /* the grade that this attempt has given the worker so far */
	bool awaited; /* counted among the attempts that wait for the worker's engine */
	bool puts_to_sleep;           /* the worker is barred until kvway knows whether it sleeps */
	int64_t picked_ns;            /* monotonic */
	uint32_t routed; /* for kvw_sources_first_token; 0: no source waits for the first token */

	/* --- to the worker --- */
	struct kvw_link *link;        /* NULL: none, or given back */
	struct kvw_block *head;       /* request head for the worker; NULL: not built */
	size_t head_sent;             /* bytes of it */
	struct kvw_cursor cursor;     /* next byte of the request's body to send */
	uint64_t body_sent;           /* raw bytes */
	uint64_t written;             /* bytes written to the present link */
	bool rank_sent;               /* its head has X-data-parallel-rank (rank.h) ... */
	int64_t rank_number;          /* ... with this number */
	uint8_t led; /* bytes of the body's beginning that the block of the head repeats (rank.h) */

	/* --- from the worker --- */
	bool answered;                /* the present link has brought a byte */
	bool keep_alive;              /* the worker allows another request on the link */
	struct kvw_block *partial;    /* the answer's head so far, if it arrived in pieces */
	size_t partial_from;          /* where the search for the head's end continues */
	struct kvw_body answer;       /* reader of the answer's body */
	struct kvw_opening opening;   /* of the answer, until its first token */
	struct kvw_held held;

	struct kvw_failure failure;   /* kvw_exchange_advance has to handle the failure */
	bool suspect;                 /* the request may have broken the worker */
	bool paid;                    /* kvw_attempt_pay_repeat has paid for the next attempt */
};

/* Notes that the worker failed. The first failure counts. */
static inline void kvw_attempt_failed(struct kvw_attempt *a, const char *why)
{
	if (a->failure.why == NULL)
		a->failure.why = why;
}

/* Notes a failure and its excuse. */
static inline void kvw_attempt_excused(
	struct kvw_attempt *a, enum kvw_excuse excuse, const char *why)
{
	a->failure.excuse = excuse;
	kvw_attempt_failed(a, why);
}

/* Notes that this timeout has passed. */
static inline void kvw_attempt_timed_out(
	struct kvw_attempt *a, const char *timeout, const char *why)
{
	a->failure.timed_out = timeout;
	kvw_attempt_failed(a, why);
}

/* Grades the worker by this attempt; why: for the log if the grade is bad. A bad grade may follow a
 * good one; after a bad grade no other counts. */
void kvw_attempt_grade(struct kvw_exchange *x, enum kvw_grade grade, const char *why);

/* Sets whether the attempt waits for the worker's engine. */
void kvw_attempt_await(struct kvw_exchange *x, bool awaited);

/* Pays for one repeat on another worker, once per attempt. False: retry.budget is used up. */
bool kvw_attempt_pay_repeat(struct kvw_exchange *x);

/* Notes that a request that puts its worker to sleep is sent to it: no other request goes there
 * from now on. */
void kvw_attempt_puts_to_sleep(struct kvw_exchange *x);

/* Called once the answer's head is there, or will never come: notes whether the worker sleeps or
 * has been woken. */
void kvw_attempt_note_sleep(struct kvw_exchange *x);

/* Ends the present attempt, if there is one: closes its link (unless the caller released the link
 * before), releases the lease, reports the outcome to the strategy, frees heads. Every end of an
 * attempt passes here. completed: the whole answer was passed on. */
void kvw_attempt_end(struct kvw_exchange *x, bool completed);

#endif
