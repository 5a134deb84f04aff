/*
 * guards.h - workers that a choice by cost passes over, however cheap they look.
 *
 * Costs are computed from predictions; guards protect where predictions fail. A worker that accepts
 * requests and answers none looks idle to the cost model as soon as its predicted work is done: the
 * bound on its requests in flight limits that. A worker that is new or has just returned has no
 * queue and would get all requests at once: slow start gives it a growing share of the mean. The
 * weight of a worker is such a share, but permanent; with few requests in flight prefixaware.c
 * counts requests to enforce shares. If the guards bar every worker, they are ignored.
 *
 * The bound is wide on purpose. One and a half times the mean is ordinary for a worker that holds a
 * popular prefix, and the third term of the cost already weighs requests in flight; a narrow bound
 * would only move requests away from their prefixes.
 */
#ifndef KVW_GUARDS_H
#define KVW_GUARDS_H

#include <stdatomic.h>

#include "kvway/route.h"

/* The members are relaxed atomics, since options may change while requests are routed. */
struct kvw_guards {
	_Atomic double bound; /* times the mean of requests in flight; 0: no bound */
	_Atomic double gap;   /* requests in flight beyond it */
};

void kvw_guards_set(struct kvw_guards *guards, const struct kvw_strategy_options *options);

/* Returns which guard bars a candidate: KVW_REASON_BOUND or _SLOW_START; KVW_REASON_COUNT: none.
 * mean: mean number of requests in flight on usable candidates. */
enum kvw_reason kvw_guards_bar(
	const struct kvw_guards *guards, const struct kvw_candidate *candidate, double mean);

/* Copies the costs of candidates that no guard bars into `open`, KVW_NO_COST for the others.
 * Returns the number of open ones. */
size_t kvw_guards_open(const struct kvw_guards *guards, const struct kvw_candidates *set,
	double mean, const double *costs, double *open);

#endif
