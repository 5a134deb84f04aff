/*
 * replay_events.h - brings cache events of simulated engines to a router.
 *
 * Each engine is watched. What it stores, drops and loses is entered into the exact view in the
 * same order, a fixed time after the begin of the step in which it happened.
 */
#ifndef KVB_REPLAY_EVENTS_H
#define KVB_REPLAY_EVENTS_H

#include "kvway/exact.h"
#include "bench/replay/replay_fleet.h"

#define KVB_EVENTS_SPACE 0u /* the space of all engines' blocks, whose keys are their hashes */

struct kvb_events;

/* Watches all engines until it is destroyed; the fleet and the view outlive it. From now on the
 * view counts as complete for every worker. Ends the program if memory runs out. */
struct kvb_events *kvb_events_create(
	const struct kvb_fleet *fleet, struct kvw_exact *exact, int64_t delay_ns);
void kvb_events_destroy(struct kvb_events *events); /* NULL is allowed */

/* Enters the events that have arrived by now. */
void kvb_events_deliver(struct kvb_events *events, int64_t now_ns);

#endif
