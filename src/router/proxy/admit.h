/*
 * admit.h - may a request be sent now, or must it wait in kvway?
 *
 * What waits and what is refused is decided by src/router/admission; here a loop keeps a gate for
 * each model (gates.h) and an exchange is an entrant. A request waits for its gate; every 2 ms at
 * most the loop asks its gates which may go on (admit_turn.h).
 *
 * Only whole requests for which an engine computes wait. Those that name their worker (a pin, a
 * stored response), try an ejected one, or come back from a worker that failed go on at once. One
 * that comes back from a worker that was full waits like a new one.
 *
 * Threads: an event loop's own.
 */
#ifndef KVW_ADMIT_H
#define KVW_ADMIT_H

#include "proxy/exchange.h"

enum kvw_admitted {
	KVW_ADMIT_ANY,     /* any worker that the strategy picks */
	KVW_ADMIT_ONE,     /* x->admission.entrant.wait.worker */
	KVW_ADMIT_NOT_NOW, /* it waits, or has been answered */
};

/* May the request, which is in ROUTING, be sent to one of these now? */
enum kvw_admitted kvw_admit(struct kvw_exchange *x, const struct kvw_candidates *set);

/* When its client has no use for an answer any more (x-kvway-deadline-ms); 0: it does not say. */
int64_t kvw_admit_deadline_ns(struct kvw_exchange *x);
/* Its client does not want to wait at all (x-kvway-do-not-queue). */
bool kvw_admit_impatient(struct kvw_exchange *x);

/* Notes what x, which is in ROUTING, is promised and when it came, unless that is done or no engine
 * computes for it. The promises of those that go on without kvw_admit count, too. */
void kvw_admit_enter(struct kvw_exchange *x);

/* Its class, of admission.classes. */
uint8_t kvw_admit_class(struct kvw_exchange *x);

/* By which its gate judges. */
struct kvw_gate_terms kvw_admit_terms(const struct kvw_exchange *x);

/* Asks the strategy, and chooses by that where x would go. False: there is no usable worker. */
bool kvw_admit_judge(struct kvw_exchange *x, const struct kvw_candidates *set);

/* Answers 429. */
void kvw_admit_refuse(struct kvw_exchange *x, enum kvw_refused why, int64_t retry_after_ns);

#endif
