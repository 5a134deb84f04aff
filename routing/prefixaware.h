/*
 * prefixaware.h - internals of the strategy prefixaware. Private to prefixaware.c, weigh.c and to
 * kvaware, which is the same with another source of hits.
 */
#ifndef KVW_PREFIXAWARE_H
#define KVW_PREFIXAWARE_H

#include <stdatomic.h>

#include "routing/choice.h"
#include "routing/guards.h"
#include "routing/radix.h"
#include "routing/rates.h"
#include "routing/capacity_share.h"
#include "routing/weigh_kernel.h"

#define KVW_PLAIN_SETS 8
#define KVW_SHARE_ONE  65536

/* State learned from requests and answers. An instance shares it with the one that it replaces
 * or that replaces it; the last one to end frees it. */
struct kvw_prefix_knowledge {
	_Atomic uint32_t users; /* instances */
	/* the tree in use: `own`, or `interim` while `own` is being recalled */
	struct kvw_radix *_Atomic tree;
	/* Both are owned. interim: NULL if there never was one; otherwise kept, since a pick may
	 * still read it. */
	struct kvw_radix *own, *interim;
	uint64_t own_bytes, seed;       /* parameters of `own` */
	/* on another cache line than the pointer, since it is written all the time */
	_Alignas(64) struct kvw_rates rates;
	struct kvw_capacity_share capacity_share;

	/* The generation of each worker's cache at its last purge from the tree. */
	_Alignas(64) _Atomic uint32_t generations[KVW_MAX_WORKERS];
};

/* An instance of the strategy. Any thread; members that change are atomic or have their own
 * locks. */
struct kvw_prefixaware {
	struct kvw_strategy base;
	struct kvw_prefix_knowledge *known;
	const struct kvw_weigh_kernel *kernel;

	/* Options are relaxed atomics, like those of the guards, since they may change while
	 * requests are routed. */
	_Atomic double omega;
	_Atomic double context_ns;        /* c */
	_Atomic bool lockstep;
	_Atomic uint64_t capacity_tokens; /* assumed for a worker that does not report its own */
	struct kvw_guards guards;
	/* By worker id, for workers with a share below 1: requests sent to it less its share of all
	 * requests, in units of 1 / KVW_SHARE_ONE of a request. Relaxed atomics. */
	_Alignas(64) _Atomic int32_t ahead[KVW_MAX_WORKERS];
	/* counter from which choices without content take their salt */
	_Alignas(64) _Atomic uint64_t turn;

	/* Sets of candidates that are all usable, of known generations and of a full share, as
	 * words of kvw_plain_word(). The index is the last bits of a set's version, in which the
	 * sets of several models differ. 0: none. */
	_Alignas(64) _Atomic uint64_t plain[KVW_PLAIN_SETS];
};

/* Returns the tree in use. A pick loads it once, since its results are invalid in another tree. */
static inline struct kvw_radix *kvw_prefixaware_tree(const struct kvw_prefixaware *pa)
{
	return atomic_load_explicit(&pa->known->tree, memory_order_acquire);
}

/* State of one pick. Arrays have the indices of the candidates. Work is in tokens, as in
 * rates.h. */
struct kvw_weighing {
	struct kvw_radix *tree;            /* the tree that was in use when the pick began */
	struct kvw_radix_path path;        /* nodes of the chain that was walked last */
	struct kvw_radix_reach reach;      /* holders of the chain that was walked last */
	double costs[KVW_MAX_WORKERS];     /* cost(w), ns */
	float x[KVW_MAX_WORKERS];          /* ns per token of work */
	int32_t inflight[KVW_MAX_WORKERS]; /* n_w */
	double saved[KVW_MAX_WORKERS];  /* work that hits in all chains save; set if hits > 0 */
	uint32_t hits[KVW_MAX_WORKERS]; /* tokens, all chains */
	double open[KVW_MAX_WORKERS];   /* costs of workers that no guard bars; rarely used */
	double reached[KVW_MAX_WORKERS +
		       /* costs in the order of `reach`, if all candidates are alike */
		       KVW_REACHED_SPARE];
	double lowest;                     /* lowest of the costs */
	double unhit;                      /* lowest cost without any hit */
	bool lockstep;                     /* lockstep_ns is set */
	/* how much the steps that ranks compute together add to the cost; may be negative */
	double lockstep_ns[KVW_MAX_WORKERS];
	float omega;
	double pairs;        /* k */
	double miss;         /* work of all chains without any hit */
	double mean;         /* mean number of requests in flight on usable candidates */
	uint64_t salt;       /* hash of the first chunk that no worker holds */
	double shares;       /* sum of the shares of usable candidates; 0: all are 1 */
	bool by_share;       /* candidates that are ahead of their share are passed over */
	size_t usable;       /* candidates */
	uint32_t tokens;     /* all chains */
	uint32_t chains;     /* number of prompts that were looked up; 0: the choice went by load */
	/* block size of all candidates, if they have the same and ids are indices; else 0 */
	uint32_t block_size;
	bool look;           /* the pick only looks: it has no effect on later picks */
};

/* The chosen worker, and the reason. */
struct kvw_choice {
	size_t pos;
	enum kvw_reason reason;
};

/* --- weigh.c, in the order of the calls --- */

/* Fills *w before the choice. The caller sets only w->look. w->usable 0: there is no worker to
 * choose. */
void kvw_weigh_hits(struct kvw_prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct kvw_weighing *w);

/* Corrects the price of delaying others for ranks of a server, which compute their steps together.
 * Called after all hits are taken. */
void kvw_weigh_lockstep(const struct kvw_candidates *set, struct kvw_weighing *w);

/* Returns the delay in ns that a prefill of that time imposes on other requests. */
static inline double kvw_weigh_others(const struct kvw_weighing *w, size_t i, double prefill_ns)
{
	return prefill_ns * w->omega * w->inflight[i] + (w->lockstep ? w->lockstep_ns[i] : 0);
}

/* Returns the work that a candidate's hits save. */
static inline double kvw_weigh_saved(const struct kvw_weighing *w, size_t i)
{
	return w->hits[i] > 0 ? w->saved[i] : 0;
}

/* Returns the ns that a token of work on a candidate costs all requests: x (1 + omega n_w). */
static inline double kvw_weigh_each(const struct kvw_weighing *w, size_t i)
{
	return w->x[i] * (1 + w->omega * (float)w->inflight[i]);
}

/* --- prefixaware.c --- */

/* Initializes a zeroed instance for any ops. KVW_ENOMEM: the caller must still call
 * kvw_prefixaware_finish. */
enum kvw_err kvw_prefixaware_init(struct kvw_prefixaware *pa, const struct kvw_strategy_ops *ops,
	const struct kvw_strategy_options *options) KVW_MUST_CHECK;
void kvw_prefixaware_finish(struct kvw_prefixaware *pa);

/* The `reconfigure` of the strategy. */
void kvw_prefixaware_reconfigure(
	struct kvw_strategy *self, const struct kvw_strategy_options *options);

/* Chooses the lowest cost among candidates that neither a guard nor their share bars, or among all
 * if all are barred. At least one candidate must be usable. Counts the request for shares, unless
 * w->look. */
struct kvw_choice kvw_prefixaware_choose(struct kvw_prefixaware *pa,
	const struct kvw_route_request *request, const struct kvw_candidates *set,
	struct kvw_weighing *w);

/* Inserts all chains for the chosen worker. */
void kvw_prefixaware_teach(struct kvw_prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidate *chosen, int64_t now_ns, struct kvw_weighing *w);

/* Fills the decision; all hits count as hits in KVW_TIER_DEVICE. */
void kvw_prefixaware_decide(const struct kvw_route_request *request,
	const struct kvw_candidates *set, struct kvw_choice choice, int64_t now_ns,
	const struct kvw_weighing *w, struct kvw_decision *out);

/* Fills costs from a finished weighing; hits count as in kvw_prefixaware_decide. */
void kvw_prefixaware_report(const struct kvw_prefixaware *pa, const struct kvw_candidates *set,
	int64_t now_ns, size_t chosen, const struct kvw_weighing *w, struct kvw_cost *costs);

/* The `done` of strategies whose instance begins with a struct kvw_prefixaware. */
void kvw_prefixaware_done(struct kvw_strategy *self, const struct kvw_decision *decision,
	const struct kvw_outcome *outcome, int64_t now_ns);
void kvw_prefixaware_stats(struct kvw_strategy *self, struct kvw_strategy_stats *out);
void kvw_prefixaware_learned(
	struct kvw_strategy *self, uint32_t worker_id, struct kvw_worker_learned *out);

/* --- prefixaware_keep.c; the functions of the same names in the strategy --- */
enum kvw_err kvw_prefixaware_keep(
	struct kvw_strategy *self, const struct kvw_keep_out *out) KVW_MUST_CHECK;
void kvw_prefixaware_recall(struct kvw_strategy *self, const struct kvw_keep_in *in);
enum kvw_err kvw_prefixaware_recall_aside(struct kvw_strategy *self) KVW_MUST_CHECK;
/* Adds the counters of the tree that is not in use, so that counters never decrease. */
void kvw_prefixaware_add_other(const struct kvw_prefixaware *pa, const struct kvw_radix *tree,
	struct kvw_strategy_stats *stats);

/* Forgets a worker that lost its cache. */
void kvw_prefixaware_forget(struct kvw_prefixaware *pa, uint32_t worker);

#endif
