/*
 * prefixaware.h - what the strategy prefixaware consists of. Private to prefixaware.c and weigh.c.
 */
#ifndef KVW_PREFIXAWARE_H
#define KVW_PREFIXAWARE_H

#include <stdatomic.h>

#include "choice.h"
#include "guards.h"
#include "radix.h"
#include "rates.h"
#include "truth.h"

/* The instance. Any thread; what changes is atomic or has locks of its own. */
struct kvw_prefixaware {
	struct kvw_strategy base;
	double omega;
	double context_ns; /* c */
	struct kvw_radix *tree;
	uint64_t capacity_tokens; /* of a worker that does not tell its own */
	struct kvw_guards guards;
	struct kvw_rates rates;
	struct kvw_truth truth;
	_Alignas(64) _Atomic uint64_t turn; /* salt of choices without content */

	/* The generation of each worker's cache that the tree knows. */
	_Alignas(64) _Atomic uint32_t generations[KVW_MAX_WORKERS];
};

/* What one pick gathers. Places of the arrays are those of the candidates. Work is in tokens, as
 * in rates.h. */
struct kvw_weighing {
	struct kvw_radix_path path;        /* of the last chain walked */
	struct kvw_radix_reach reach;      /* of the last chain walked */
	double costs[KVW_MAX_WORKERS];     /* first Q_w + c T_w, then cost(w), ns */
	float x[KVW_MAX_WORKERS];          /* ns per token of work */
	int32_t inflight[KVW_MAX_WORKERS]; /* n_w */
	double saved[KVW_MAX_WORKERS];     /* work that hits save, all chains */
	uint32_t hits[KVW_MAX_WORKERS];    /* tokens, all chains */
	double open[KVW_MAX_WORKERS];      /* costs of those whom no guard bars; rarely used */
	float omega;
	double pairs;    /* k */
	double miss;     /* work without any hit, all chains */
	double mean;     /* requests in flight on a usable candidate */
	uint64_t salt;   /* first chunk that nobody holds */
	size_t usable;   /* candidates */
	uint32_t tokens; /* all chains */
	uint32_t chains; /* prompts looked up; 0: went by load */
	bool look;       /* change nothing that a later pick could see */
};

/* Sets costs and all else that is known before the choice. Only w->look is set before; usable 0:
 * there is nobody to choose. */
void kvw_weigh(struct kvw_prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct kvw_weighing *w);

/* The worker's cache is lost. */
void kvw_prefixaware_forget(struct kvw_prefixaware *pa, uint32_t worker);

#endif
