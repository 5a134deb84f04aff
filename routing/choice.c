/*
 * choice.c - picks the worker of the lowest cost, in nanoseconds.
 *
 * Predicted times are good to some percent at best, so costs within a hundredth of each other (and
 * within 20 us, if all are idle) are a tie. A rendezvous hash breaks ties: replicas of the router
 * that see the same load agree without exchanging messages, and idle workers share unknown prompts
 * evenly.
 */
#include "routing/choice.h"

#include <assert.h>

#define TIE_SHARE 0.01
#define TIE_NS    20000.0

void kvw_prefill_model_set(
	struct kvw_prefill_model *model, const struct kvw_strategy_options *options)
{
	double rate = options->prefill_tokens_per_second;

	atomic_store_explicit(
		&model->ns_per_token, rate > 0 ? 1e9 / rate : 0, memory_order_relaxed);
	atomic_store_explicit(
		&model->ns_per_pair, options->attention_ns_per_pair, memory_order_relaxed);
	atomic_store_explicit(&model->omega, options->omega, memory_order_relaxed);
}

uint32_t kvw_request_tokens(const struct kvw_route_request *request)
{
	uint64_t tokens = 0;
	uint32_t begin = 0;

	if (!request->content_known)
		return 0;
	for (uint32_t c = 0; c < request->chain_count; c++) {
		tokens += kvw_chain_tokens(request, begin, request->chain_ends[c]);
		begin = request->chain_ends[c];
	}
	return tokens < UINT32_MAX ? (uint32_t)tokens : UINT32_MAX;
}

int64_t kvw_request_prefill_ns(
	const struct kvw_prefill_model *model, const struct kvw_route_request *request)
{
	double ns = 0;
	uint32_t begin = 0;

	if (!request->content_known || !request->teaches)
		return 0;
	for (uint32_t c = 0; c < request->chain_count; c++) {
		ns += kvw_prefill_ns(
			model, kvw_chain_tokens(request, begin, request->chain_ends[c]), 0);
		begin = request->chain_ends[c];
	}
	return (int64_t)ns;
}

size_t kvw_usable_count(const struct kvw_candidates *set)
{
	size_t usable = 0;

	for (size_t i = 0; i < set->count; i++)
		usable += set->items[i].usable;
	return usable;
}

double kvw_share_sum(const struct kvw_candidates *set, bool *limited)
{
	double sum = 0;

	*limited = false;
	for (size_t i = 0; i < set->count; i++) {
		if (!set->items[i].usable)
			continue;
		sum += set->items[i].share < 1 ? set->items[i].share : 1;
		*limited |= set->items[i].share < 1;
	}
	return sum;
}

/* Returns the score, taken as a number below 1, to the power of 1 / share (weighted rendezvous
 * hashing). */
uint64_t kvw_limit_score(uint64_t score, double share)
{
	return share > 0 ? (uint64_t)(pow((double)(score >> 11) * 0x1p-53, 1 / share) * 0x1p64) : 0;
}

/* Compares four at a time, so that no comparison waits for the one before. */
double kvw_lowest(const double *costs, size_t count)
{
	double low[4] = {KVW_NO_COST, KVW_NO_COST, KVW_NO_COST, KVW_NO_COST};
	size_t i = 0;

	for (; i + 4 <= count; i += 4)
		for (size_t k = 0; k < 4; k++)
			low[k] = costs[i + k] < low[k] ? costs[i + k] : low[k];
	for (; i < count; i++)
		low[0] = costs[i] < low[0] ? costs[i] : low[0];
	low[0] = low[1] < low[0] ? low[1] : low[0];
	low[2] = low[3] < low[2] ? low[3] : low[2];
	return low[2] < low[0] ? low[2] : low[0];
}

double kvw_tie_limit_of(double lowest)
{
	return lowest + lowest * TIE_SHARE + TIE_NS;
}

double kvw_tie_limit(const double *costs, size_t count)
{
	return kvw_tie_limit_of(kvw_lowest(costs, count));
}

size_t kvw_choose_among(
	const struct kvw_candidates *set, const uint16_t *places, size_t count, uint64_t salt)
{
	size_t best = places[0];
	uint64_t best_score = 0;

	for (size_t i = 0; i < count && count > 1; i++) {
		uint64_t score = kvw_rendezvous(salt, set->items[places[i]].key);

		if (i == 0 || score > best_score) {
			best = places[i];
			best_score = score;
		}
	}
	return best;
}

size_t kvw_choose_lowest(const struct kvw_candidates *set, const double *costs, uint64_t salt)
{
	double limit = kvw_tie_limit(costs, set->count);
	size_t best = set->count;
	uint64_t best_score = 0;

	assert(limit < KVW_NO_COST);
	for (size_t i = 0; i < set->count; i++) {
		uint64_t score = 0;

		if (costs[i] > limit)
			continue;
		score = kvw_rendezvous(salt, set->items[i].key);
		if (best == set->count || score > best_score) {
			best = i;
			best_score = score;
		}
	}
	return best;
}

/* Chooses among equal candidates, some with a limited share: one whose turn it is, if it costs no
 * more than the others; one whose turn it is not only if there is no other. */
static size_t choose_in_turn(
	const struct kvw_candidates *set, double *costs, double shares, uint64_t salt)
{
	double limit = kvw_tie_limit(costs, set->count);
	/* a number that is spread evenly over 0 to 1 */
	double turn = (uint32_t)(salt * UINT32_C(0x9E3779B9)) * 0x1p-32;
	double end = 0; /* end of the parts of the workers that were looked at so far */
	double others[KVW_MAX_WORKERS];
	bool any = false;

	for (size_t i = 0; i < set->count; i++) {
		const struct kvw_candidate *c = &set->items[i];

		others[i] = costs[i];
		if (c->share >= 1 || !c->usable) {
			any |= c->usable;
			continue;
		}
		bool has_turn = turn >= end && turn < end + c->share / shares;

		end += c->share / shares;
		if (!has_turn)
			others[i] = KVW_NO_COST;
		else if (costs[i] <= limit)
			return i;
		any |= others[i] < KVW_NO_COST;
	}
	return kvw_choose_lowest(set, any ? others : costs, salt);
}

size_t kvw_choose_by_load(const struct kvw_prefill_model *model, const struct kvw_candidates *set,
	int64_t now_ns, uint64_t salt)
{
	double unknown = kvw_prefill_ns(model, KVW_UNKNOWN_TOKENS, 0);
	double omega = atomic_load_explicit(&model->omega, memory_order_relaxed);
	double costs[KVW_MAX_WORKERS];
	double shares = 0;
	bool limited = false;

	omega = omega > KVW_MIN_OMEGA ? omega : KVW_MIN_OMEGA;
	assert(set->count <= KVW_MAX_WORKERS);
	for (size_t i = 0; i < set->count; i++) {
		struct kvw_load *load = set->items[i].load;

		costs[i] = KVW_NO_COST;
		if (set->items[i].usable)
			costs[i] = kvw_load_delay_ns(load, KVW_UNKNOWN_TOKENS, now_ns) +
				   omega * unknown * (kvw_load_inflight(load) + 1);
	}
	shares = kvw_share_sum(set, &limited);
	return limited && shares > 0 ? choose_in_turn(set, costs, shares, salt)
				     : kvw_choose_lowest(set, costs, salt);
}

void kvw_explain_unweighed(const struct kvw_prefill_model *model,
	const struct kvw_route_request *request, const struct kvw_candidates *set, int64_t now_ns,
	size_t chosen, struct kvw_cost *costs)
{
	double prefill_ns = (double)kvw_request_prefill_ns(model, request);

	for (size_t i = 0; i < set->count; i++) {
		const struct kvw_candidate *c = &set->items[i];

		costs[i] = (struct kvw_cost){
			.queue_ns = (double)kvw_load_queue_ns(c->load, now_ns),
			.prefill_ns = prefill_ns,
			.inflight = kvw_load_inflight(c->load),
			.verdict = c->usable ? KVW_VERDICT_NOT_ITS_TURN : KVW_VERDICT_UNUSABLE,
		};
		if (i == chosen)
			costs[i].verdict = KVW_VERDICT_CHOSEN;
	}
}
