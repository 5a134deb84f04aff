/*
 * asked.h - asks one worker after the other for what one alone keeps, where it is not known which.
 *
 * An id is in no table (owners.h) where kvway was started without its snapshot, or another replica
 * saw the answer that gave it out. GET, DELETE, cancel, and what goes on with a response, are then
 * asked of the next worker as long as workers answer 404.
 *
 * Threads: those of the exchange's loop.
 */
#ifndef KVW_ASKED_H
#define KVW_ASKED_H

#include "proxy/exchange.h"

/* The worker's answer begins. True: it is 404, and another worker is to be asked, which the attempt
 * has noted. */
bool kvw_asked_leaves(struct kvw_exchange *x, const struct kvw_head *head);

/* Picks the next of those that are asked in turn. False: the request is none such. */
bool kvw_asked_pick(struct kvw_exchange *x, const struct kvw_candidates *set);

#endif
