/* replay_count.h - the figures of a replay that is over. */
#ifndef KVB_REPLAY_COUNT_H
#define KVB_REPLAY_COUNT_H

#include "bench/replay/replay_run.h"

/* What is counted while the replay goes on. */
struct kvb_tally {
	uint64_t refusals; /* a client that comes back may be refused several times */
	uint64_t slow;     /* of these, neither within 100 ms nor by the deadline */
	double late_s;     /* longest beyond its deadline that one waited for its refusal */
};

/* One refusal of a request that asked for the last time at course->asked_ns. */
void kvb_tally_refusal(struct kvb_tally *tally, const struct kvb_job *job,
	const struct kvb_course *course, int64_t now_ns);

struct kvb_replay_result kvb_replay_count(const struct kvb_fleet *fleet,
	const struct kvb_policy *policy, void *policy_state, const struct kvb_tally *tally);

#endif
