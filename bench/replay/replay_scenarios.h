/*
 * replay_scenarios.h - makes workloads that need no trace, from scenarios.def.
 *
 * The same seed gives the same jobs everywhere.
 */
#ifndef KVB_REPLAY_SCENARIOS_H
#define KVB_REPLAY_SCENARIOS_H

#include <stdio.h>

#include "bench/replay/replay_fleet.h"

struct kvb_scenario {
	const char *name;
	/* Adds the jobs. Rates of arrival are multiplied by `scale` and by workers / 8. */
	void (*make)(struct kvb_jobs *jobs, double scale, uint32_t workers, uint64_t seed);
	struct kvb_oddity odd;
	struct kvb_resets resets;
	const char *what;
};

extern const struct kvb_scenario kvb_scenarios[]; /* ends with a NULL name */
const struct kvb_scenario *kvb_scenario_find(const char *name);

#endif
