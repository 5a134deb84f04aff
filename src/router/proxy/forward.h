/*
 * forward.h - finds the workers that can have a request, and decides whether another may follow one
 * that failed.
 */
#ifndef KVW_FORWARD_H
#define KVW_FORWARD_H

#include "proxy/exchange.h"

/* Reads the candidates once more, and makes the request ready for a strategy. The candidates are
 * borrowed until the loop's next read. False: the model is not known any more, or, with a
 * group_fault, the group's step has to refuse the request. */
bool kvw_request_candidates(struct kvw_exchange *x, struct kvw_candidates *set);

/* Returns whether the worker that keeps the response or session is in the set, and the request can
 * be sent there; that worker may be resting. */
bool kvw_request_has_owner(
	const struct kvw_exchange *x, const struct kvw_candidate *items, size_t count, size_t *pos);

/* Lets the strategy choose a worker. */
enum kvw_err kvw_request_pick(
	struct kvw_exchange *x, const struct kvw_candidates *set) KVW_MUST_CHECK;

/* Returns whether a usable worker is left besides the present one and those already tried. */
bool kvw_request_has_choice(const struct kvw_exchange *x);

/* Returns whether the request, which has no token, may leave its worker for another one; if so,
 * pays for that. suspicions: of the request, this worker included. */
bool kvw_request_may_leave(struct kvw_exchange *x, uint32_t suspicions);

/* Returns whether the request, which its full worker refused, may go to a worker with room, or wait
 * until any has room. */
bool kvw_request_may_find_room(struct kvw_exchange *x);

#endif
