/*
 * admit.h - decides whether a request is sent now or waits in kvway.
 *
 * src/router/admission decides which requests wait and which are refused; here a loop keeps a gate
 * for each model (gates.h), and an exchange is an entrant of its gate. A request waits for its
 * gate; every 2 ms at most the loop asks its gates which requests may go on (admit_turn.h).
 *
 * Only whole requests for which an engine computes wait. A request that names its worker (a pin, a
 * stored response), tries an ejected worker, or comes back from a worker that failed goes on at
 * once. A request that comes back from a full worker waits like a new one.
 *
 * Threads: an event loop's own.
 */
#ifndef KVW_ADMIT_H
#define KVW_ADMIT_H

#include "proxy/exchange.h"

enum kvw_admitted {
	KVW_ADMIT_ANY,     /* any worker that the strategy picks */
	KVW_ADMIT_ONE,     /* x->admission.entrant.wait.worker */
	KVW_ADMIT_NOT_NOW, /* the request waits, or has been answered */
};

/* Decides whether the request x, in state ROUTING, may be sent to a worker of the set now. */
enum kvw_admitted kvw_admit(struct kvw_exchange *x, const struct kvw_candidates *set);

/* Returns the time after which the client has no use for an answer (x-kvway-deadline-ms); 0: no
 * limit. */
int64_t kvw_admit_deadline_ns(struct kvw_exchange *x);
/* Returns whether the client refuses to wait at all (x-kvway-do-not-queue). */
bool kvw_admit_impatient(struct kvw_exchange *x);

/* Notes the promise to x, in state ROUTING, and x's arrival, unless both are noted already or no
 * engine computes for x. Promises to requests that go on without kvw_admit count, too. */
void kvw_admit_enter(struct kvw_exchange *x);

/* Returns the promise to x, which does not need to have been noted. */
struct kvw_promise kvw_admit_promise(struct kvw_exchange *x);

/* Returns the index of the request's class in admission.classes. */
uint8_t kvw_admit_class(struct kvw_exchange *x);

/* Returns the terms by which the gate judges the request. */
struct kvw_gate_terms kvw_admit_terms(const struct kvw_exchange *x);

/* Asks the strategy and notes the worker that it chose for x. False: no worker is usable. */
bool kvw_admit_judge(struct kvw_exchange *x, const struct kvw_candidates *set);

/* Answers 429. */
void kvw_admit_refuse(struct kvw_exchange *x, enum kvw_refused why, int64_t retry_after_ns);

#endif
