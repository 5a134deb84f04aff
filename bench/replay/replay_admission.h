/*
 * replay_admission.h - decides before a policy whether a request is sent, waits or is refused.
 *
 * One file and one line of admissions.def each. The replay passes every request that arrives to
 * `arrive`, and after each event calls `next` for the requests that may go on: until it says
 * NOTHING, each answer is one request that is sent now (the policy picks its worker) or refused.
 * Every request that arrives must be answered once, at the latest when nothing else can happen. The
 * rules of other projects are re-implemented from their publications.
 */
#ifndef KVB_REPLAY_ADMISSION_H
#define KVB_REPLAY_ADMISSION_H

#include "bench/replay/replay_policy.h"
#include "bench/replay/replay_slo.h"

enum kvb_word { KVB_NOTHING, KVB_SEND, KVB_REFUSE };

struct kvb_admission_answer {
	uint32_t job;
	/* For a refused request: after which time it may come back. 0: the answer does not say, and
	 * the client decides for itself. */
	int64_t retry_after_ns;
};

/* The objects that an admission uses. Borrowed; all of them outlive the admission. */
struct kvb_admission_env {
	const struct kvb_fleet *fleet;
	const struct kvb_policy *policy;
	void *policy_state;
	const struct kvw_config *config; /* kvway's configuration, used by kvway's admission only */
	double param;                    /* the parameter in its line of admissions.def */
};

struct kvb_admission_ops {
	void *(*create)(const struct kvb_admission_env *env); /* never NULL */
	/* A request has arrived, perhaps one that was refused before. */
	void (*arrive)(void *self, uint32_t job, int64_t now_ns);
	enum kvb_word (*next)(void *self, int64_t now_ns, struct kvb_admission_answer *out);
	/* Optional: returns whether the worker that the policy chose accepts the request. If not,
	 * the request is refused. */
	bool (*takes)(void *self, uint32_t job, uint32_t worker);
	/* Returns when `next` must be called although nothing happens, after now; INT64_MAX:
	 * never. */
	int64_t (*wake_ns)(void *self, int64_t now_ns);
	/* optional: a worker was chosen for the request */
	void (*sent)(void *self, uint32_t job, int64_t now_ns);
	/* optional */
	void (*token)(void *self, uint32_t job, bool first, bool last, int64_t now_ns);
	/* Optional. A step of so many ns has computed `decoded` tokens of answers that had begun,
	 * one of each. */
	void (*step)(void *self, uint32_t worker, int64_t ns, uint32_t decoded, int64_t now_ns);
	void (*destroy)(void *self);
};

struct kvb_admission {
	const char *name;
	const struct kvb_admission_ops *ops; /* NULL: every request is sent when it arrives */
	bool peer;                           /* the rule of another project, for comparison */
	double param;
	const char *source; /* where its rule and its defaults are published */
};

/* All admissions of admissions.def, ended by one whose name is NULL. */
extern const struct kvb_admission kvb_admissions[];
const struct kvb_admission *kvb_admission_find(const char *name);

#endif
