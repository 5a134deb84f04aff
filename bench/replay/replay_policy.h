/*
 * replay_policy.h - the interface of routing policies for the replay; each has one file and one
 * line in policies.def.
 *
 * The policies of other projects are re-implemented from their publications, with their published
 * defaults; none of their code is used. A policy that needs KV events gets the real contents of the
 * workers' caches (kvb_fleet_hit), which is more than events can show.
 */
#ifndef KVB_REPLAY_POLICY_H
#define KVB_REPLAY_POLICY_H

#include "config/config.h"
#include "bench/replay/replay_fleet.h"

/* The objects that a policy uses. Borrowed; the fleet and the configuration outlive the policy. */
struct kvb_policy_env {
	const struct kvb_fleet *fleet;
	const struct kvw_config *config; /* kvway's configuration, used by kvway's policies only */
	uint64_t seed;
	double param; /* the parameter in its line of policies.def */
};

/* An implementation; each policy_*.c defines one. */
struct kvb_policy_ops {
	void *(*create)(const struct kvb_policy_env *env); /* never NULL */
	/* Chooses a worker for the job. The fleet's ledger does not have this job yet. */
	uint32_t (*pick)(void *self, uint32_t job, int64_t now_ns);
	/* Optional; without it the policy splits nothing. Of the job that was just picked for: the
	 * worker that prefills for the one that was picked; KVB_ROUTED: none does. */
	uint32_t (*prefiller)(void *self, uint32_t job);
	/* Optional. Called when the prefiller has finished the job. */
	void (*prefilled)(void *self, uint32_t job, int64_t now_ns);
	void (*first_token)(void *self, uint32_t job, int64_t now_ns); /* optional */
	void (*done)(void *self, uint32_t job, int64_t now_ns);        /* optional */
	/* Optional: the hit, in tokens, that was predicted when a worker was chosen for the job. */
	double (*foretold)(void *self, uint32_t job);
	void (*destroy)(void *self);
};

/* A policy: an implementation and a parameter. */
struct kvb_policy {
	const char *name;
	const struct kvb_policy_ops *ops;
	bool peer; /* the router of another project, for comparison */
	double param;
	const char *source; /* where its rule and its defaults are published */
};

/* All policies of policies.def, ended by one whose name is NULL. */
extern const struct kvb_policy kvb_policies[];
const struct kvb_policy *kvb_policy_find(const char *name);

/* Returns the index of the lowest of `count` costs; if several are equal, a random one of them, by
 * *state. */
uint32_t kvb_lowest(const double *costs, uint32_t count, uint64_t *state);

/* Kilobytes per policy and worker are of no concern here; costs of all workers lie on the stack. */
#define KVB_MAX_WORKERS 1024

#endif
