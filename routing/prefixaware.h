/*
 * prefixaware.h - what the strategy prefixaware consists of. Private to prefixaware.c, weigh.c and
 * to kvaware, which is the same with another source of hits.
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

/* What requests and answers have taught. Shared with the instance that this one replaces or that
 * replaces it; the last to end frees it. */
struct kvw_prefix_knowledge {
	_Atomic uint32_t users; /* instances */
	struct kvw_radix *_Atomic tree; /* in use: `own`, or `interim` while that is recalled */
	/* owned; interim: NULL if there never was one, else kept, since a pick may read it yet. */
	struct kvw_radix *own, *interim;
	uint64_t own_bytes, seed;       /* that `own` was made of */
	_Alignas(64) struct kvw_rates rates; /* written all the time, the tree's pointer is not */
	struct kvw_capacity_share capacity_share;

	/* The generation of each worker's cache that the tree knows. */
	_Alignas(64) _Atomic uint32_t generations[KVW_MAX_WORKERS];
};

/* The instance. Any thread; what changes is atomic or has locks of its own. */
struct kvw_prefixaware {
	struct kvw_strategy base;
	struct kvw_prefix_knowledge *known;
	const struct kvw_weigh_kernel *kernel;

	/* Options, as are the guards': relaxed, they change while requests are routed. */
	_Atomic double omega;
	_Atomic double context_ns;        /* c */
	_Atomic uint64_t capacity_tokens; /* of a worker that does not report its own */
	struct kvw_guards guards;
	/* What a worker of a share below 1 was sent beyond its share of the requests, in 1 /
	 * KVW_SHARE_ONE of a request: by id, relaxed. */
	_Alignas(64) _Atomic int32_t ahead[KVW_MAX_WORKERS];
	_Alignas(64) _Atomic uint64_t turn; /* salt of choices without content */

	/* Sets whose candidates are all usable, of known generations and of a full share, as
	 * kvw_plain_word() encodes them, by the last bits of their versions; those of several
	 * models differ in these. 0: none. */
	_Alignas(64) _Atomic uint64_t plain[KVW_PLAIN_SETS];
};

/* The tree in use. A pick loads it once: what it has found there means nothing in another one. */
static inline struct kvw_radix *kvw_prefixaware_tree(const struct kvw_prefixaware *pa)
{
	return atomic_load_explicit(&pa->known->tree, memory_order_acquire);
}

/* What one pick gathers. Places of the arrays are those of the candidates. Work is in tokens, as
 * in rates.h. */
struct kvw_weighing {
	struct kvw_radix *tree;            /* in use when the pick began */
	struct kvw_radix_path path;        /* of the last chain walked */
	struct kvw_radix_reach reach;      /* of the last chain walked */
	double costs[KVW_MAX_WORKERS];     /* cost(w), ns */
	float x[KVW_MAX_WORKERS];          /* ns per token of work */
	int32_t inflight[KVW_MAX_WORKERS]; /* n_w */
	double saved[KVW_MAX_WORKERS];  /* work that hits save, all chains; where there are hits */
	uint32_t hits[KVW_MAX_WORKERS]; /* tokens, all chains */
	double open[KVW_MAX_WORKERS];   /* costs of workers that no guard bars; rarely used */
	double reached[KVW_MAX_WORKERS +
		       KVW_REACHED_SPARE]; /* costs in the order of reach, if alike */
	double lowest;                     /* of costs */
	double unhit;                      /* the lowest without any hit */
	float omega;
	double pairs;        /* k */
	double miss;         /* work without any hit, all chains */
	double mean;         /* requests in flight on a usable candidate */
	uint64_t salt;       /* first chunk without a holder */
	double shares;       /* of usable candidates; 0: all are 1 */
	bool by_share;       /* pass over those that are ahead of their share */
	size_t usable;       /* candidates */
	uint32_t tokens;     /* all chains */
	uint32_t chains;     /* prompts looked up; 0: went by load */
	uint32_t block_size; /* of all candidates, whose ids are their places, or 0 */
	bool look;           /* change nothing that a later pick could see */
};

/* The chosen worker, and why. */
struct kvw_choice {
	size_t pos;
	enum kvw_reason reason;
};

/* --- weigh.c, in this order --- */

/* Sets all that is known before the choice. Only w->look is set before; usable 0: there is no
 * worker to choose. */
void kvw_weigh_hits(struct kvw_prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct kvw_weighing *w);

/* Work that a candidate's hits save. */
static inline double kvw_weigh_saved(const struct kvw_weighing *w, size_t i)
{
	return w->hits[i] > 0 ? w->saved[i] : 0;
}

/* ns that a token of work on a candidate costs everybody: x (1 + omega n_w). */
static inline double kvw_weigh_each(const struct kvw_weighing *w, size_t i)
{
	return w->x[i] * (1 + w->omega * (float)w->inflight[i]);
}

/* --- prefixaware.c --- */

/* For an instance of any ops, zeroed. KVW_ENOMEM: kvw_prefixaware_finish is still to be called. */
enum kvw_err kvw_prefixaware_init(struct kvw_prefixaware *pa, const struct kvw_strategy_ops *ops,
	const struct kvw_strategy_options *options) KVW_MUST_CHECK;
void kvw_prefixaware_finish(struct kvw_prefixaware *pa);

/* As the strategy's. */
void kvw_prefixaware_reconfigure(
	struct kvw_strategy *self, const struct kvw_strategy_options *options);

/* The lowest cost, unless a guard or its share bars it and not all others. Some candidate is
 * usable. Counts what workers of a share are sent, unless w->look. */
struct kvw_choice kvw_prefixaware_choose(struct kvw_prefixaware *pa,
	const struct kvw_route_request *request, const struct kvw_candidates *set,
	struct kvw_weighing *w);

/* The chosen worker will hold all chains. */
void kvw_prefixaware_teach(struct kvw_prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidate *chosen, int64_t now_ns, struct kvw_weighing *w);

/* All hits are taken to lie in KVW_TIER_DEVICE. */
void kvw_prefixaware_decide(const struct kvw_route_request *request,
	const struct kvw_candidates *set, struct kvw_choice choice, int64_t now_ns,
	const struct kvw_weighing *w, struct kvw_decision *out);

/* Fills costs from a finished weighing, hits as above. */
void kvw_prefixaware_report(const struct kvw_prefixaware *pa, const struct kvw_candidates *set,
	int64_t now_ns, size_t chosen, const struct kvw_weighing *w, struct kvw_cost *costs);

/* Of strategies that begin with a struct kvw_prefixaware. */
void kvw_prefixaware_done(struct kvw_strategy *self, const struct kvw_decision *decision,
	const struct kvw_outcome *outcome, int64_t now_ns);
void kvw_prefixaware_stats(struct kvw_strategy *self, struct kvw_strategy_stats *out);
void kvw_prefixaware_learned(
	struct kvw_strategy *self, uint32_t worker_id, struct kvw_worker_learned *out);

/* --- prefixaware_keep.c; as the strategy's --- */
enum kvw_err kvw_prefixaware_keep(
	struct kvw_strategy *self, const struct kvw_keep_out *out) KVW_MUST_CHECK;
void kvw_prefixaware_recall(struct kvw_strategy *self, const struct kvw_keep_in *in);
enum kvw_err kvw_prefixaware_recall_aside(struct kvw_strategy *self) KVW_MUST_CHECK;
/* What the other tree than this one has counted since the start: counters never go back. */
void kvw_prefixaware_add_other(const struct kvw_prefixaware *pa, const struct kvw_radix *tree,
	struct kvw_strategy_stats *stats);

/* The worker's cache is lost. */
void kvw_prefixaware_forget(struct kvw_prefixaware *pa, uint32_t worker);

#endif
