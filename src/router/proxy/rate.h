/*
 * rate.h - a request and the limits of its key, its tenant and its model (src/router/rates).
 *
 * Charged before it waits for anything, by prediction (steps/limits.c); corrected when it ends, by
 * the answer's usage, or where there is none by what passed.
 */
#ifndef KVW_RATE_H
#define KVW_RATE_H

#include "proxy/exchange.h"

/* The header fields that say what is left, for its answer. */
#define KVW_RATE_ROOM KVW_RATE_FIELDS_ROOM
size_t kvw_rate_fields(const struct kvw_exchange *x, char out[KVW_RATE_ROOM]);

/* A piece of its answer's stream. */
void kvw_rate_watch(struct kvw_exchange *x, const char *data, size_t len);

/* At its end. */
void kvw_rate_end(struct kvw_exchange *x, enum kvw_end end);

/* Is it charged to any limit? */
static inline bool kvw_rate_holds(const struct kvw_exchange *x)
{
	return x->rating.rated && x->rating.ticket.count > 0;
}

static inline struct kvw_rate_time kvw_rate_time_of(const struct kvw_loop *loop)
{
	return (struct kvw_rate_time){loop->now_ns, loop->now_ns + loop->wall_offset_ns};
}

#endif
