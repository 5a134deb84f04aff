/*
 * replay_routers.h - several replicas of kvway before the same workers.
 *
 * A policy and an admission that stand for N of each: every request goes to one of them, as a load balancer would
 * have it, and each learns of its own requests only. What they know of each other's load they have by the messages
 * of src/router/sharing, written, read and applied by its code; here is only the way between them, which takes as
 * long as Redis is said to. They speak in turn, each once an interval.
 *
 * Besides them there may be a peer that is none and says what is not so, in messages of the same kind.
 */
#ifndef KVB_REPLAY_ROUTERS_H
#define KVB_REPLAY_ROUTERS_H

#include "bench/replay/replay_admission.h"

#define KVB_MOST_ROUTERS 16u

enum kvb_odd_peer {
	KVB_PEER_NONE,
	KVB_PEER_STALE, /* repeats what the first router said 30 s after the begin, as new each time */
	KVB_PEER_LYING, /* has every worker busy for as long as a message can say */
	KVB_PEER_BIASED, /* the same of half of the workers */
};

struct kvb_routers {
	uint32_t count;       /* 1..KVB_MOST_ROUTERS */
	bool shared;          /* they hear each other */
	bool sticky;          /* requests that begin alike go to the same one */
	int64_t interval_ns, life_ns;
	int64_t delay_ns;     /* from one that speaks to those that hear */
	int64_t lost_ns;      /* Redis is gone from here; INT64_MAX: never */
	enum kvb_odd_peer odd;
	const struct kvb_policy *policy;       /* of each: kvway or kvaware */
	const struct kvb_admission *admission; /* of each: kvway or NULL */
};

/* Both read fleet->options.routers. */
extern const struct kvb_policy_ops kvb_routers_ops;
extern const struct kvb_admission_ops kvb_admission_routers_ops;

#endif
