/*
 * moves.h - moves chunks between L1 and lower tiers: ends requests, begins new ones.
 */
#ifndef KVT_MOVES_H
#define KVT_MOVES_H

#include "core/core.h"

/* Starts all loads and stores that can start now, in all tiers. The caller holds `lock`. */
void kvt_pump(struct kvt *k);

/* Steps the tier once, waiting up to wait_ns, and handles finished requests. Called by the tier's
 * thread, or by the caller that steps in its place; `lock` is not held. Returns the number of
 * actions. */
size_t kvt_moves_step(struct kvt_lower *b, int64_t wait_ns, int64_t *next_ns);

/* Handles timeouts of the tiers, and starts loads and stores that can start then. The caller holds
 * `lock`. *next_ns as in kvt_lower_tick. Returns the number of actions. */
size_t kvt_moves_tick(struct kvt *k, int64_t now_ns, int64_t *next_ns);

#endif
