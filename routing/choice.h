/*
 * choice.h - functions that strategies share: prefill times, the lowest cost, and ties.
 *
 * Pure functions of their arguments; any thread.
 */
#ifndef KVW_CHOICE_H
#define KVW_CHOICE_H

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kvway/route.h"

/* Model of a worker's prefill time. The members are relaxed atomics, since options may change while
 * requests are routed. */
struct kvw_prefill_model {
	_Atomic double ns_per_token;
	_Atomic double ns_per_pair; /* cost per pair of tokens: attention */
	_Atomic double omega; /* weight of the delay that a prefill imposes on running requests */
};

void kvw_prefill_model_set(
	struct kvw_prefill_model *model, const struct kvw_strategy_options *options);

/* Returns the ns to prefill tokens [hit, length): (L - h) / R + a (L^2 - h^2) / 2. */
static inline double kvw_prefill_ns(
	const struct kvw_prefill_model *model, double length, double hit)
{
	double per_token = atomic_load_explicit(&model->ns_per_token, memory_order_relaxed);
	double per_pair = atomic_load_explicit(&model->ns_per_pair, memory_order_relaxed);

	return (length - hit) * per_token + (length * length - hit * hit) * (per_pair / 2);
}

/* Returns the tokens of a chain, by the end of its last chunk; 0 for a chain without chunks. */
static inline uint32_t kvw_chain_tokens(
	const struct kvw_route_request *request, uint32_t begin, uint32_t end)
{
	if (begin >= end)
		return 0;
	return (uint32_t)((double)request->chunks[end - 1].end * request->tokens_per_unit + 0.5);
}

/* Returns the tokens of all chains. */
uint32_t kvw_request_tokens(const struct kvw_route_request *request);

/* Returns the ns of prefill if nothing is cached; 0 for a request without prefill charge. */
int64_t kvw_request_prefill_ns(
	const struct kvw_prefill_model *model, const struct kvw_route_request *request);

/* Rendezvous score: equal in every replica, independent between candidates. */
static inline uint64_t kvw_rendezvous(uint64_t what, uint64_t key)
{
	uint64_t x = (what ^ key * UINT64_C(0x9E3779B97F4A7C15)) * UINT64_C(0xD6E8FEB86659FD93);

	x = (x ^ x >> 32) * UINT64_C(0xD6E8FEB86659FD93);
	return x ^ x >> 32;
}

/* Returns the first index whose id is >= from; set->count: there is none. */
static inline size_t kvw_place_from(const struct kvw_candidates *set, uint32_t from)
{
	size_t low = 0;
	size_t high = set->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (set->items[middle].id < from)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

size_t kvw_usable_count(const struct kvw_candidates *set);

/* Returns the sum of the shares of all usable candidates, each at most 1; *limited: some share is
 * below 1. */
double kvw_share_sum(const struct kvw_candidates *set, bool *limited);

/* Lowers a score so that it wins against a full candidate's in proportion to share (< 1). */
uint64_t kvw_limit_score(uint64_t score, double share);

/* Cost of a candidate that cannot be chosen. */
#define KVW_NO_COST ((double)INFINITY)

/* Returns the position of the lowest cost (ns); unusable candidates have KVW_NO_COST, and at least
 * one must be usable. Costs that differ by less than the precision of predictions count as equal;
 * among those the highest rendezvous score of `salt` wins. */
size_t kvw_choose_lowest(const struct kvw_candidates *set, const double *costs, uint64_t salt);

/* Does the same among `count` (> 0) indices whose costs count as equal. */
size_t kvw_choose_among(
	const struct kvw_candidates *set, const uint16_t *places, size_t count, uint64_t salt);

/* Returns the lowest of `costs`; KVW_NO_COST if count is 0. */
double kvw_lowest(const double *costs, size_t count);

/* Returns the limit up to which costs count as equal to `lowest`. */
double kvw_tie_limit_of(double lowest);

/* Returns the limit up to which costs count as equal to the lowest of them. */
double kvw_tie_limit(const double *costs, size_t count);

/* Assumed tokens of a prompt whose length is unknown. */
#define KVW_UNKNOWN_TOKENS 1024.0

/* Least weight of requests in flight for an unknown prompt. */
#define KVW_MIN_OMEGA 0.01

/* Chooses by load alone, for an unknown prompt. salt: one more than the last request's, so that
 * workers with a share are chosen in turn. */
size_t kvw_choose_by_load(const struct kvw_prefill_model *model, const struct kvw_candidates *set,
	int64_t now_ns, uint64_t salt);

/* Fills costs for a strategy that does not compare costs: the known numbers of each candidate, and
 * the verdicts. */
void kvw_explain_unweighed(const struct kvw_prefill_model *model,
	const struct kvw_route_request *request, const struct kvw_candidates *set, int64_t now_ns,
	size_t chosen, struct kvw_cost *costs);

#endif
