/*
 * attempt.h - one worker asked once.
 *
 * An exchange is what the client sees; an attempt is what a worker is asked for it. The exchange owns
 * one at a time: it begins with a pick (kvw_request_pick) and ends in kvw_attempt_end, however it
 * ends. Between two attempts, and after the last, worker and decision stay readable for log and metrics.
 */
#ifndef KVW_ATTEMPT_H
#define KVW_ATTEMPT_H

#include "base/block.h"
#include "fleet/link.h"
#include "http/body.h"
#include "kvway/load.h"
#include "kvway/route.h"

struct kvw_exchange;

/* Part of its exchange; zeroed with it. */
struct kvw_attempt {
	struct kvw_worker *worker;
	struct kvw_decision decision; /* why this worker */
	struct kvw_lease lease;       /* its share of the worker's load */
	bool decided;                 /* decision and worker are set */
	bool picked;                  /* the strategy's done() is still owed for decision */
	bool decoding;                /* counted in the gauge of answers being generated */
	int64_t picked_ns;            /* monotonic */

	/* --- to the worker --- */
	struct kvw_link *link;        /* NULL: none, or given back */
	struct kvw_block *head;       /* request head as the worker gets it; NULL: not built */
	size_t head_sent;             /* bytes of it */
	struct kvw_cursor cursor;     /* next byte of the request's body to send */
	uint64_t body_sent;           /* raw bytes */
	uint64_t written;             /* bytes written to the present link */

	/* --- from the worker --- */
	bool answered;                /* the present link brought a byte */
	bool keep_alive;              /* the worker allows another request on it */
	struct kvw_block *partial;    /* the answer's head so far, if it came in pieces */
	size_t partial_from;          /* where the search for its end goes on */
	struct kvw_body answer;       /* reader of the answer's body */

	/* --- the failure that kvw_exchange_advance has to deal with --- */
	const char *failure;          /* why, for users; static, or as long as the link. NULL: none */
	bool timed_out;               /* waiting for the worker took too long */
};

/* Notes that the worker failed. The first failure counts. */
static inline void kvw_attempt_failed(struct kvw_attempt *a, const char *why)
{
	if (a->failure == NULL)
		a->failure = why;
}

/* Ends the present attempt, if there is one: closes its link (unless the caller released it before),
 * releases the lease, reports the outcome to the strategy, frees heads. The one place where this
 * happens, on every way out. completed: the answer was passed on whole. */
void kvw_attempt_end(struct kvw_exchange *x, bool completed);

#endif
