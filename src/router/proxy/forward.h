/*
 * forward.h - which worker serves a request: model, owner, strategy; and the head for it.
 */
#ifndef KVW_FORWARD_H
#define KVW_FORWARD_H

#include "proxy/exchange.h"

/* Begins an attempt: picks a worker, books its load, writes the head for it. False: not now, the
 * exchange is PARKED, there is none, which was answered, or the guard has to refuse it (group_fault). */
bool kvw_request_pick(struct kvw_exchange *x);

/* Reads the candidates once more, and makes the request ready for a strategy to look at it. Borrowed until the loop's next
 * look. False: its model is not known any more, or, with a group_fault, the guard has to refuse it. */
bool kvw_request_candidates(struct kvw_exchange *x, struct kvw_candidates *set);

/* Returns whether a usable worker is left besides the present one and those already tried. */
bool kvw_request_has_choice(const struct kvw_exchange *x);

/* Whether the request, which has no token, may leave its worker for another one, and pays for that if so.
 * suspicions: of the request, this worker counted. */
bool kvw_request_may_leave(struct kvw_exchange *x, uint32_t suspicions);

/* Whether the request, which its worker did not take for it is full, may go to another one that has room, or wait until
 * any has. */
bool kvw_request_may_find_room(struct kvw_exchange *x);

/* Looks whether newer model lists know the model of x, which is PARKED: back to ROUTING if so; answers
 * that there is no such model if all lists are new. Returns whether either happened. */
bool kvw_request_unpark(struct kvw_exchange *x);

/* It has been PARKED long enough: answers that there is no such model. */
void kvw_request_park_over(struct kvw_exchange *x);

#endif
