/*
 * replay_admission.h - what stands before a policy: it lets requests in, keeps them waiting or refuses them.
 *
 * One file and one line of admissions.def each. The replay hands every request that arrives to
 * `arrive` and asks `next`, whenever anything has happened, for what may go on: until it says NOTHING,
 * each answer is one request that is sent now (the policy picks its worker) or refused. Every request
 * that arrives must be answered once, at the latest when nothing else can happen. The peers'
 * rules are re-implementations from what their projects publish.
 */
#ifndef KVB_REPLAY_ADMISSION_H
#define KVB_REPLAY_ADMISSION_H

#include "bench/replay/replay_policy.h"
#include "bench/replay/replay_slo.h"

enum kvb_word { KVB_NOTHING, KVB_SEND, KVB_REFUSE };

struct kvb_admission_answer {
	uint32_t job;
	/* Of one that is refused: when it may come back, from now. 0: the answer says nothing, and a
	 * client that comes back decides for itself. */
	int64_t retry_after_ns;
};

/* What an admission is made from. Borrowed; all of it outlives the admission. */
struct kvb_admission_env {
	const struct kvb_fleet *fleet;
	const struct kvb_policy *policy;
	void *policy_state;
	const struct kvw_config *config; /* kvway's own; peers do not read it */
	double param;                    /* of its line in admissions.def */
};

struct kvb_admission_ops {
	void *(*create)(const struct kvb_admission_env *env); /* never NULL */
	/* A request, perhaps one that was refused and comes back. */
	void (*arrive)(void *self, uint32_t job, int64_t now_ns);
	enum kvb_word (*next)(void *self, int64_t now_ns, struct kvb_admission_answer *out);
	/* Optional: does the worker that the policy chose accept the request? If not, it is refused. */
	bool (*takes)(void *self, uint32_t job, uint32_t worker);
	/* When `next` wants to be asked although nothing happens, after now; INT64_MAX: not. */
	int64_t (*wake_ns)(void *self, int64_t now_ns);
	void (*sent)(void *self, uint32_t job, int64_t now_ns); /* optional: its worker was picked */
	void (*token)(void *self, uint32_t job, bool first, bool last, int64_t now_ns); /* optional */
	/* Optional. A step of so many ns brought `decoded` tokens of answers that had begun, each its next. */
	void (*step)(void *self, uint32_t worker, int64_t ns, uint32_t decoded, int64_t now_ns);
	void (*destroy)(void *self);
};

struct kvb_admission {
	const char *name;
	const struct kvb_admission_ops *ops; /* NULL: every request is sent when it comes */
	bool peer;                           /* another project's, to be compared with */
	double param;
	const char *source; /* where its rule and its defaults are published */
};

/* All of admissions.def; ends with a NULL name. */
extern const struct kvb_admission kvb_admissions[];
const struct kvb_admission *kvb_admission_find(const char *name);

#endif
