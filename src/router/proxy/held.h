/*
 * held.h - a loop's requests that wait until a worker of their model is ready (discovery.wake).
 *
 * They are in WAKING, in the order in which they came, on loop->waking. A request that comes while others of its
 * model wait goes behind them, although a worker may be ready by now.
 *
 * Threads: an event loop's own.
 */
#ifndef KVW_HELD_H
#define KVW_HELD_H

#include "fleet/wake/wakes.h"
#include "proxy/exchange.h"

/* x->wake and x->hold_until_ns are set; the caller writes the state. */
void kvw_held_add(struct kvw_exchange *x);
/* It waits no longer; the caller writes the state. */
void kvw_held_remove(struct kvw_exchange *x, enum kvw_wake_result result);
/* Do others wait for that model here? */
bool kvw_held_any(const struct kvw_loop *loop, const struct kvw_wake_model *model);

#endif
