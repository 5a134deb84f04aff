/*
 * asked.h - asks one worker after the other for an object that one worker alone keeps, where kvway
 * does not know which.
 *
 * The table of owners (owners.h) lacks an id if kvway was started without its snapshot, or if
 * another replica saw the answer that named the id. kvway then sends GET, DELETE, cancel, and a
 * request that continues a response, to one worker after the other as long as workers answer 404.
 *
 * Threads: those of the exchange's loop.
 */
#ifndef KVW_ASKED_H
#define KVW_ASKED_H

#include "proxy/exchange.h"

/* Called when the worker's answer begins. True: the answer is 404, and the attempt has noted that
 * another worker is asked. */
bool kvw_asked_leaves(struct kvw_exchange *x, const struct kvw_head *head);

/* Picks the next of the workers that are asked in turn. False: this request asks none in turn. */
bool kvw_asked_pick(struct kvw_exchange *x, const struct kvw_candidates *set);

#endif
