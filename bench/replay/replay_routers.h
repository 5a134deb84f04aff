/*
 * replay_routers.h - simulates several replicas of kvway with the same workers.
 *
 * A policy and an admission that contain N of each: every request goes to one of the replicas, as
 * by a load balancer, and each replica sees its own requests only. They exchange their load by the
 * messages of src/router/sharing, whose code writes, reads and applies them; this file only
 * simulates the transport, which takes as long as Redis would. They send in turn, each once in an
 * interval.
 *
 * In addition there may be a false peer, which sends wrong messages of the same kind.
 */
#ifndef KVB_REPLAY_ROUTERS_H
#define KVB_REPLAY_ROUTERS_H

#include "bench/replay/replay_admission.h"

#define KVB_MOST_ROUTERS 16u

enum kvb_odd_peer {
	KVB_PEER_NONE,
	/* it repeats the first router's message of 30 s after the begin, as a new one each time */
	KVB_PEER_STALE,
	KVB_PEER_LYING, /* it claims that every worker is as busy as a message can express */
	KVB_PEER_BIASED, /* it claims the same for half of the workers */
};

struct kvb_routers {
	uint32_t count;       /* 1..KVB_MOST_ROUTERS */
	bool shared;          /* they hear each other */
	bool sticky;          /* requests with the same beginning go to the same replica */
	int64_t interval_ns, life_ns;
	int64_t delay_ns;     /* time from the sender to the receivers */
	int64_t lost_ns;      /* Redis cannot be reached from here on; INT64_MAX: always */
	enum kvb_odd_peer odd;
	const struct kvb_policy *policy;       /* policy of each replica: kvway or kvaware */
	const struct kvb_admission *admission; /* admission of each replica: kvway or NULL */
};

/* The policy and the admission; both read fleet->options.routers. */
extern const struct kvb_policy_ops kvb_routers_ops;
extern const struct kvb_admission_ops kvb_admission_routers_ops;

#endif
