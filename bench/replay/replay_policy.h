/*
 * replay_policy.h - a routing policy as the replay sees it; one file and one line of policies.def each.
 *
 * The peers' policies are re-implementations from what their projects publish, with their
 * published defaults; none of their code is in here. Where a peer lives on KV events it is given
 * the workers' caches as they truly are (kvb_fleet_hit), which is more than events can do.
 */
#ifndef KVB_REPLAY_POLICY_H
#define KVB_REPLAY_POLICY_H

#include "config/config.h"
#include "bench/replay/replay_fleet.h"

/* What a policy is made from. Borrowed; the fleet and the configuration outlive the policy. */
struct kvb_policy_env {
	const struct kvb_fleet *fleet;
	const struct kvw_config *config; /* kvway's own; peers do not read it */
	uint64_t seed;
	double param; /* of its line in policies.def */
};

/* One implementation: one policy_*.c defines one of these. */
struct kvb_policy_ops {
	void *(*create)(const struct kvb_policy_env *env); /* never NULL */
	/* A worker for the job. The fleet's ledger is as it was before this job. */
	uint32_t (*pick)(void *self, uint32_t job, int64_t now_ns);
	/* Optional; without it the policy splits nothing. Of the job that was just picked for: the
	 * worker that prefills for the one that was picked; KVB_ROUTED: none does. */
	uint32_t (*prefiller)(void *self, uint32_t job);
	/* Optional. That worker is through with it. */
	void (*prefilled)(void *self, uint32_t job, int64_t now_ns);
	void (*first_token)(void *self, uint32_t job, int64_t now_ns); /* optional */
	void (*done)(void *self, uint32_t job, int64_t now_ns);        /* optional */
	/* Optional: the hit in tokens that was predicted when the job was picked for. */
	double (*foretold)(void *self, uint32_t job);
	void (*destroy)(void *self);
};

/* One row: an implementation with a parameter. */
struct kvb_policy {
	const char *name;
	const struct kvb_policy_ops *ops;
	bool peer; /* another project's router, to be compared with; not ours, not a yardstick */
	double param;
	const char *source; /* where its rule and its defaults are published */
};

/* All of policies.def; ends with a NULL name. */
extern const struct kvb_policy kvb_policies[];
const struct kvb_policy *kvb_policy_find(const char *name);

/* The lowest of `count` costs; among equal ones any, by *state. */
uint32_t kvb_lowest(const double *costs, uint32_t count, uint64_t *state);

/* Kilobytes per policy and worker are of no concern here; costs of all workers lie on the stack. */
#define KVB_MAX_WORKERS 1024

#endif
