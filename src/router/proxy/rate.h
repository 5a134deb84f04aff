/*
 * rate.h - charges a request to the limits of its key, its tenant and its model (src/router/rates).
 *
 * A request is charged with a prediction before it waits for anything (steps/limits.c); at its end
 * the charge is corrected by what the request has used (used.h).
 */
#ifndef KVW_RATE_H
#define KVW_RATE_H

#include "proxy/exchange.h"

/* Writes the header fields that show what is left of the limits, for the answer. */
#define KVW_RATE_ROOM KVW_RATE_FIELDS_ROOM
size_t kvw_rate_fields(const struct kvw_exchange *x, char out[KVW_RATE_ROOM]);

/* Corrects the charge at the request's end. */
void kvw_rate_end(struct kvw_exchange *x, enum kvw_end end);

/* Returns whether the request is charged to any limit. */
static inline bool kvw_rate_holds(const struct kvw_exchange *x)
{
	return x->rating.rated && x->rating.ticket.count > 0;
}

static inline struct kvw_rate_time kvw_rate_time_of(const struct kvw_loop *loop)
{
	return (struct kvw_rate_time){loop->now_ns, loop->now_ns + loop->wall_offset_ns};
}

#endif
