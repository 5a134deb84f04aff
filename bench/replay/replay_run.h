/*
 * replay_run.h - one replay: a policy, a fleet and a list of jobs, in simulated time.
 */
#ifndef KVB_REPLAY_RUN_H
#define KVB_REPLAY_RUN_H

#include "bench/replay/replay_admission.h"

/* Figures of one class of requests. */
struct kvb_class_result {
	size_t requests;
	double goodput, refused_share, ttft_p99;
	double wait_max_s; /* longest until one was sent, or refused for good */
};

/* Figures of one replay. Seconds and shares; NAN: not known. */
struct kvb_replay_result {
	size_t requests;     /* that came to the router; all else is of these */
	double cached_share; /* of all prompt tokens */
	double ttft_mean, ttft_p50, ttft_p90, ttft_p99;
	double gap_p99; /* between two tokens, to 1 % */
	double tpot_mean, tpot_p99, e2e_mean, e2e_p99;
	double goodput; /* good answers of all */
	/* Of programs, that is of jobs that follow each other; NAN where none does. */
	double turn_goodput;      /* of all turns of those that began, with turns that never came */
	double programs;          /* that began */
	double programs_per_hour; /* that finished */
	double programs_given_up; /* because a turn was refused too often */
	double refused_share;     /* that got no answer; times are of the others */
	double refusals;          /* per request */
	double refused_late_s; /* longest beyond its deadline, its limit by the SLO, that one waited */
	double refused_slow_share; /* of refusals, neither within 100 ms nor by the deadline */
	double imbalance;          /* busiest worker's time in steps over the mean */
	double busy_share;         /* of the workers' time, in steps */
	double last_s;             /* end of the last answer */
	uint64_t preemptions;
	double foretold; /* share of predicted hits within a block of the real one; NAN: no predictions */
	double *share;    /* of requests by worker; owned, NULL: none */
	double odd_share; /* of requests that came while worker 0 stalled, those sent to it */
	struct kvb_class_result classes[KVB_CLASSES];
	uint32_t class_count; /* 1: all are alike */
	struct kvb_pd_counts pd;
	uint32_t holders;     /* workers that hold half of the first job's prompt at the end */
};

/* Runs all jobs to their end; a client whose request was refused comes back five times at most,
 * where jobs->retry says so. `late` scales all times of arrival, 1 being as given. Without an
 * admission, NULL, each request is sent when it comes. */
struct kvb_replay_result kvb_replay_run(const struct kvb_fleet_options *options,
	const struct kvb_jobs *jobs, double late, const struct kvb_policy *policy,
	const struct kvb_admission *admission, const struct kvw_config *config, uint64_t seed);
void kvb_replay_result_finish(struct kvb_replay_result *result);

#endif
