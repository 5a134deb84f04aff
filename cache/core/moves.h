/*
 * moves.h - what moves between L1 and the tiers below it: which requests end, what may begin.
 */
#ifndef KVT_MOVES_H
#define KVT_MOVES_H

#include "core/core.h"

/* Starts what may be started now, in all tiers. Under lock. */
void kvt_pump(struct kvt *k);

/* Steps the tier once, waiting up to wait_ns, and deals with what is finished. From its thread, or
 * the caller that steps for it; without lock. Returns what was done. */
size_t kvt_moves_step(struct kvt_lower *b, int64_t wait_ns, int64_t *next_ns);

/* What is due by time in the tiers, and what may begin then. Under lock. *next_ns as
 * kvt_lower_tick. Returns what was done. */
size_t kvt_moves_tick(struct kvt *k, int64_t now_ns, int64_t *next_ns);

#endif
