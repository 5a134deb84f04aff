/*
 * replay_events.h - what the simulated engines publish of their caches, on its way to a router.
 *
 * Each engine is watched; what it stores, drops and loses goes into the exact view a fixed time after
 * the step in which it happened began, in the order in which it happened.
 */
#ifndef KVB_REPLAY_EVENTS_H
#define KVB_REPLAY_EVENTS_H

#include "kvway/exact.h"
#include "bench/replay/replay_fleet.h"

#define KVB_EVENTS_SPACE 0u /* of all engines' blocks; their keys are their hashes */

struct kvb_events;

/* Watches all engines until it is destroyed; the fleet and the view outlive it. Every worker is seen
 * in full from now on. Ends the program when memory runs out. */
struct kvb_events *kvb_events_create(
	const struct kvb_fleet *fleet, struct kvw_exact *exact, int64_t delay_ns);
void kvb_events_destroy(struct kvb_events *events); /* NULL is allowed */

/* Hands over what has arrived by now. */
void kvb_events_deliver(struct kvb_events *events, int64_t now_ns);

#endif
