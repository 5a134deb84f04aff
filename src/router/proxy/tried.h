/*
 * tried.h - remembers the workers that have failed a request, and finds those that are left for it.
 *
 * Threads: those of the exchange's loop.
 */
#ifndef KVW_TRIED_H
#define KVW_TRIED_H

#include "proxy/exchange.h"

/* Notes a worker that has failed the request. named: the client may learn its URL. */
void kvw_tried_note(
	struct kvw_tried *tried, const struct kvw_worker *worker, const char *why, bool named);

/* Removes workers that this request has tried, and also other data-parallel ranks of their servers
 * while another server is left, since the whole server may be broken. After a rank that was only
 * full, its server's other ranks stay. */
void kvw_tried_drop(const struct kvw_exchange *x, struct kvw_fleet_table *table);

/* Reads the workers of the request's model and group that it has not tried, from the fleet's
 * present state. */
void kvw_tried_read_others(const struct kvw_exchange *x, struct kvw_fleet_table *table);

#endif
