/*
 * admit.h - requests that wait in kvway until a worker can take them.
 *
 * What waits and what is refused is decided by src/router/admission; here a loop keeps a gate for each
 * model and an exchange is an entrant. A request that waits is in QUEUED; every WAIT_TURN_NS at most the loop asks
 * its gates who may go on.
 *
 * Only whole requests for which an engine computes wait. Those that name their worker (a pin, a stored
 * response), try an ejected one, or come back from a worker that failed go on at once.
 *
 * Threads: an event loop's own.
 */
#ifndef KVW_ADMIT_H
#define KVW_ADMIT_H

#include "proxy/exchange.h"
#include "proxy/gates.h"

enum kvw_admitted {
	KVW_ADMIT_ANY,     /* any worker that the strategy picks */
	KVW_ADMIT_ONE,     /* x->entrant.wait.worker */
	KVW_ADMIT_NOT_NOW, /* it waits, or has been answered */
};

/* May the request, which is in ROUTING, be sent to one of these now? */
enum kvw_admitted kvw_admit(struct kvw_exchange *x, const struct kvw_candidates *set);

/* A worker was picked by the strategy. */
void kvw_admit_picked(struct kvw_exchange *x);
void kvw_admit_first_token(struct kvw_exchange *x);
/* A piece of the stream came gap_ns after the one before it. */
void kvw_admit_token(struct kvw_exchange *x, int64_t gap_ns);
/* The attempt has ended, wherever it was. */
void kvw_admit_ended(struct kvw_exchange *x);
/* The exchange in QUEUED waits no longer; it is in ROUTING then. */
void kvw_admit_leave(struct kvw_exchange *x);

/* Between two turns of the loop: lets go on what can. */
void kvw_admit_turn(struct kvw_loop *loop);
/* How long the loop may sleep because of what waits; -1: as long as it likes. */
int64_t kvw_admit_sleep_ns(const struct kvw_loop *loop);
void kvw_admit_finish(struct kvw_gates *gates);

#endif
