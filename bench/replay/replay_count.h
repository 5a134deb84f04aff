/* replay_count.h - computes the figures of a replay that has ended. */
#ifndef KVB_REPLAY_COUNT_H
#define KVB_REPLAY_COUNT_H

#include "bench/replay/replay_run.h"

/* Numbers that are counted during the replay. */
struct kvb_tally {
	uint64_t refusals; /* a client that comes back may be refused several times */
	uint64_t slow;     /* refusals that came neither within 100 ms nor by the deadline */
	double late_s; /* longest time that a request waited beyond its deadline for its refusal */
};

/* Counts a refusal of a request that had arrived, the last time, at course->asked_ns. */
void kvb_tally_refusal(struct kvb_tally *tally, const struct kvb_job *job,
	const struct kvb_course *course, int64_t now_ns);

struct kvb_replay_result kvb_replay_count(const struct kvb_fleet *fleet,
	const struct kvb_policy *policy, void *policy_state, const struct kvb_tally *tally);

#endif
