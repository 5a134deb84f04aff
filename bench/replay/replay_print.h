/*
 * replay_print.h - options of kvb-replay and the results that it writes to standard output.
 *
 * One JSON object each. Plain functions without state; single-threaded.
 */
#ifndef BENCH_REPLAY_REPLAY_PRINT_H
#define BENCH_REPLAY_REPLAY_PRINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bench/replay/replay_routers.h"
#include "bench/replay/replay_run.h"

/* Texts point into argv. */
struct kvb_replay_options {
	const char *trace, *scenario, *policy, *admission, *config;
	const char *retry; /* NULL: as the jobs are */
	double scale;
	uint64_t seed;
	size_t requests;
	struct kvb_fleet_options fleet;
	struct kvb_profile profile; /* the profile, if an option changes one of its figures */
	double context_ns;          /* below 0: the profile's value */
	struct kvb_routers routers;
	bool list, spread;
	int64_t pause_ns;
	double wave, waves;
	uint32_t repeat;
};

/* Writes the names of policies, admissions, rules, scenarios and signals. */
void kvb_replay_print_list(void);
/* Writes the figures of one run. */
void kvb_replay_print(
	const struct kvb_replay_options *o, const struct kvb_replay_result *r);

#endif
