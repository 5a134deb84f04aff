/*
 * replay_run.h - one replay: a policy, a fleet and a list of jobs, in simulated time.
 */
#ifndef KVB_REPLAY_RUN_H
#define KVB_REPLAY_RUN_H

#include "bench/replay/replay_policy.h"

/* A good answer came in time: first token within ttft_s + input / tokens_per_s, and less than
 * tpot_s for each further token. */
struct kvb_replay_slo {
	double ttft_s, tokens_per_s, tpot_s;
};
extern const struct kvb_replay_slo kvb_replay_slo;

/* Figures of one replay. Seconds and shares; NAN: not known. */
struct kvb_replay_result {
	size_t requests;     /* that went through the router; all else is of these */
	double cached_share; /* of all prompt tokens */
	double ttft_mean, ttft_p50, ttft_p90, ttft_p99;
	double tpot_mean, e2e_mean, e2e_p99;
	double goodput;   /* good answers of all */
	double imbalance; /* busiest worker's time in steps over the mean */
	double last_s;    /* end of the last answer */
	uint64_t preemptions;
	double foretold; /* share of predicted hits within a block of the real one; NAN: no predictions */
	double *share;   /* of requests by worker; owned, NULL: none */
	double odd_share; /* of requests that came while worker 0 stalled, those sent to it */
	uint32_t holders; /* workers that hold half of the first job's prompt at the end */
};

/* Runs all jobs to their end. `late` scales all times of arrival, 1 being as given. */
struct kvb_replay_result kvb_replay_run(const struct kvb_fleet_options *options,
	const struct kvb_jobs *jobs, double late, const struct kvb_policy *policy,
	const struct kvw_config *config, uint64_t seed);
void kvb_replay_result_finish(struct kvb_replay_result *result);

#endif
