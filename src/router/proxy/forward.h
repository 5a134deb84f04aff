/*
 * forward.h - which workers can have a request, and may one that failed it be followed by another?
 */
#ifndef KVW_FORWARD_H
#define KVW_FORWARD_H

#include "proxy/exchange.h"

/* Reads the candidates once more, and makes the request ready for a strategy to look at it.
 * Borrowed until the loop's next look. False: its model is not known any more, or, with a
 * group_fault, the group's step has to refuse it. */
bool kvw_request_candidates(struct kvw_exchange *x, struct kvw_candidates *set);

/* The worker that keeps the response or session is among these, and can be sent the request: it may
 * rest. */
bool kvw_request_has_owner(
	const struct kvw_exchange *x, const struct kvw_candidate *items, size_t count, size_t *pos);

/* The strategy chooses one. */
enum kvw_err kvw_request_pick(
	struct kvw_exchange *x, const struct kvw_candidates *set) KVW_MUST_CHECK;

/* Returns whether a usable worker is left besides the present one and those already tried. */
bool kvw_request_has_choice(const struct kvw_exchange *x);

/* Whether the request, which has no token, may leave its worker for another one, and pays for that
 * if so. suspicions: of the request, this worker counted. */
bool kvw_request_may_leave(struct kvw_exchange *x, uint32_t suspicions);

/* Whether the request, which its worker did not take for it is full, may go to another one that has
 * room, or wait until any has. */
bool kvw_request_may_find_room(struct kvw_exchange *x);

#endif
