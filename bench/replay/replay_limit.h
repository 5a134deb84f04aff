/*
 * replay_limit.h - computes a bound that no router can exceed on these workers.
 *
 * The bound is one machine as fast as all workers together, with one cache that forgets nothing
 * and has a block as soon as any request asked for it, and work that divides over all workers
 * without loss. Decoding costs it nothing but its own time. On such a machine
 *
 * - no more tokens can be reused, so cached_share is a bound;
 * - serving the shortest remaining prefill first gives the least mean time to first token there is,
 *   for every schedule of any fleet is also one of this machine;
 * - each further token takes at least one step of its engine, which bounds TPOT and end to end;
 * - where requests with too little time left ask for more work than the machine has until then,
 *   some must be late: the fewest that must, over spans of time that do not overlap, bound goodput.
 *
 * Where jobs follow others' ends, when they come depends on the router; then only a job's own work
 * counts and not what it waits for.
 */
#ifndef KVB_REPLAY_LIMIT_H
#define KVB_REPLAY_LIMIT_H

#include "bench/replay/replay_run.h"

/* Computes bounds in the form of kvb_replay_run's result; percentiles are NAN, the shares of
 * workers NULL. */
struct kvb_replay_result kvb_replay_limit(
	const struct kvb_fleet_options *options, const struct kvb_jobs *jobs, double late);

#endif
