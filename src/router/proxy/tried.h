/*
 * tried.h - the workers that a request could go to and has not tried.
 *
 * Threads: those of the exchange's loop.
 */
#ifndef KVW_TRIED_H
#define KVW_TRIED_H

#include "proxy/exchange.h"

/* Leaves out workers that this request has tried. */
void kvw_tried_drop(const struct kvw_exchange *x, struct kvw_fleet_table *table);

/* The workers of the request's model and group that it has not tried, by the fleet as it is now. */
void kvw_tried_read_others(const struct kvw_exchange *x, struct kvw_fleet_table *table);

#endif
