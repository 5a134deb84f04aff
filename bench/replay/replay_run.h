/*
 * replay_run.h - runs one replay: a policy, a fleet and a list of jobs, in simulated time.
 */
#ifndef KVB_REPLAY_RUN_H
#define KVB_REPLAY_RUN_H

#include "bench/replay/replay_admission.h"

/* Figures of one class of requests. */
struct kvb_class_result {
	size_t requests;
	double goodput, refused_share, ttft_p99;
	double wait_max_s; /* longest time until a request was sent, or refused for good */
};

/* Figures of one replay, in seconds and shares; NAN: not known. */
struct kvb_replay_result {
	size_t requests; /* requests that came to the router; all other figures are about these */
	double cached_share; /* share of all prompt tokens */
	double ttft_mean, ttft_p50, ttft_p90, ttft_p99;
	double gap_p99; /* times between two tokens, to 1 % */
	double tpot_mean, tpot_p99, e2e_mean, e2e_p99;
	double goodput; /* share of requests with a good answer */
	/* Figures of programs, that is, of jobs that follow each other; NAN if there are none. */
	/* share of all turns of the programs that began, also of turns that never came */
	double turn_goodput;
	double programs;          /* number of programs that began */
	double programs_per_hour; /* programs that finished, per hour */
	/* programs that gave up because one of their turns was refused too often */
	double programs_given_up;
	double refused_share;     /* share that got no answer; times are those of the others */
	double refusals;          /* per request */
	/* longest time that a request waited for its refusal beyond the limit that the SLO gives
	 * it */
	double refused_late_s;
	/* share of the refusals that came neither within 100 ms nor by the deadline */
	double refused_slow_share;
	double imbalance;          /* time of the busiest worker in steps, divided by the mean */
	double busy_share;         /* share of the workers' time that is spent in steps */
	double last_s;             /* end of the last answer */
	uint64_t preemptions;
	double worker_hours;   /* up to the last arrival */
	uint32_t workers_most; /* at once */
	/* share of predicted hits that were right within a block; NAN: no predictions */
	double foretold;
	double *share;    /* share of requests for each worker; owned; NULL: none */
	/* share of the requests that came while worker 0 stalled and were sent to it */
	double odd_share;
	struct kvb_class_result classes[KVB_CLASSES];
	uint32_t class_count; /* 1: all are alike */
	struct kvb_pd_counts pd;
	struct kvb_mp_counts mp;
	/* number of workers that hold half of the first job's prompt at the end */
	uint32_t holders;
};

/* Runs all jobs to their end. A client whose request was refused comes back five times at most, if
 * jobs->retry is set. `late` multiplies all times of arrival. Without an admission (NULL), each
 * request is sent when it comes. */
struct kvb_replay_result kvb_replay_run(const struct kvb_fleet_options *options,
	const struct kvb_jobs *jobs, double late, const struct kvb_policy *policy,
	const struct kvb_admission *admission, const struct kvw_config *config, uint64_t seed);
void kvb_replay_result_finish(struct kvb_replay_result *result);

#endif
