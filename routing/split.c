/*
 * split.c - compares one worker with pairs of workers.
 *
 * A transfer's two numbers come from a line through samples whose weight halves every 44. It
 * begins with two samples of its own: 30 ms, and 10 us more for each token, about what a model of
 * 8 billion parameters needs over 100 Gbit/s. What a first token waits for at its decoder, a step
 * that runs or KV memory, is seen as a long transfer, and a whole request would wait there, too. So
 * a sample above the line counts a quarter.
 *
 * An answer that is decoded where others are prefilled is delayed by them and delays them, after it
 * was priced. So a whole request costs a second more on a worker whose part is to prefill: in the
 * replay (bench/README.md) half a second splits too little of long prompts, and with two the first
 * token waits longer.
 */
#include "routing/split.h"

#define FORGET       (63.0 / 64)
#define PRIOR_NS     30e6
#define PRIOR_TOKENS 10000.0
#define PRIOR_SLOPE  10e3
#define PRIOR_WEIGHT 4.0
#define LATE_WEIGHT  0.25
#define STRAY_NS     1e9

static void add_sample(struct kvw_transfer *t, double weight, double tokens, double ns)
{
	t->weight += weight;
	t->x += weight * tokens;
	t->y += weight * ns;
	t->xx += weight * tokens * tokens;
	t->xy += weight * tokens * ns;
}

/* Fits a line through the samples; if all are about equally long the slope stays. */
static void fit(struct kvw_transfer *t)
{
	double mean_x = t->x / t->weight, mean_y = t->y / t->weight;
	double spread = t->xx / t->weight - mean_x * mean_x;
	double slope = atomic_load_explicit(&t->ns_per_token, memory_order_relaxed);
	double fixed;

	if (spread > 1 + mean_x * mean_x / 64)
		slope = (t->xy / t->weight - mean_x * mean_y) / spread;
	if (slope < 0)
		slope = 0;
	fixed = mean_y - slope * mean_x;
	if (fixed < 0) {
		fixed = 0;
		slope = mean_x > 0 ? mean_y / mean_x : slope;
	}
	atomic_store_explicit(&t->fixed_ns, fixed, memory_order_relaxed);
	atomic_store_explicit(&t->ns_per_token, slope, memory_order_relaxed);
}

void kvw_transfer_init(struct kvw_transfer *t)
{
	atomic_init(&t->lock, false);
	t->weight = t->x = t->y = t->xx = t->xy = 0;
	atomic_store(&t->samples, 0);
	add_sample(t, PRIOR_WEIGHT, 0, PRIOR_NS);
	add_sample(t, PRIOR_WEIGHT, PRIOR_TOKENS, PRIOR_NS + PRIOR_TOKENS * PRIOR_SLOPE);
	atomic_store(&t->ns_per_token, PRIOR_SLOPE);
	fit(t);
}

void kvw_transfer_learn(struct kvw_transfer *t, double tokens, double ns)
{
	bool late = ns > kvw_transfer_ns(t, tokens);

	if (!(tokens >= 0) || !(ns >= 0))
		return;
	kvw_spin_lock(&t->lock);
	t->weight *= FORGET;
	t->x *= FORGET;
	t->y *= FORGET;
	t->xx *= FORGET;
	t->xy *= FORGET;
	add_sample(t, late ? LATE_WEIGHT : 1, tokens, ns);
	fit(t);
	kvw_spin_unlock(&t->lock);
	atomic_fetch_add_explicit(&t->samples, 1, memory_order_relaxed);
}

double kvw_transfer_ns(const struct kvw_transfer *t, double tokens)
{
	return atomic_load_explicit(&t->fixed_ns, memory_order_relaxed) +
	       tokens * atomic_load_explicit(&t->ns_per_token, memory_order_relaxed);
}

static double cached_of(const struct kvw_cost *cost)
{
	double tokens = cost->fragment_tokens;

	for (size_t tier = 0; tier < KVW_TIER_COUNT; tier++)
		tokens += cost->hit_tokens[tier];
	return tokens;
}

/* Returns the price of serving the request whole: the strategy's total, or if it computes none the
 * queue and the prefill alone. */
static double whole_ns(const struct kvw_cost *cost)
{
	return cost->total_ns > 0 ? cost->total_ns : cost->queue_ns + cost->prefill_ns;
}

/*
 * A prefill there costs the time until it is done, and the delay of answers. This answer is not
 * decoded there, so the contexts there do not delay it. A worker that has no whole requests decodes
 * nothing: requests before this one are counted in its queue.
 */
static double leg_ns(const struct kvw_candidate *item, const struct kvw_cost *cost)
{
	return cost->queue_ns + cost->prefill_ns + cost->evict_ns +
	       (item->usable ? cost->others_ns : 0);
}

/* The two cheapest prefillers, the cheaper one first; SIZE_MAX: none. There are two because a
 * decoder that also prefills is paired with the other one. */
struct prefillers {
	size_t best, second;
};

static struct prefillers find_prefillers(
	const struct kvw_candidates *set, const struct kvw_cost *costs)
{
	struct prefillers p = {SIZE_MAX, SIZE_MAX};

	for (size_t i = 0; i < set->count; i++) {
		double ns = leg_ns(&set->items[i], &costs[i]);

		if (!set->items[i].prefills)
			continue;
		if (p.best == SIZE_MAX || ns < leg_ns(&set->items[p.best], &costs[p.best]))
			p = (struct prefillers){i, p.best};
		else if (p.second == SIZE_MAX ||
			 ns < leg_ns(&set->items[p.second], &costs[p.second]))
			p.second = i;
	}
	return p;
}

/* The price of a pair. The decoder's queue passes while the other worker prefills. */
static double pair_ns(const struct kvw_candidates *set, const struct kvw_cost *costs,
	size_t decoder, size_t prefiller, double moved_ns)
{
	const struct kvw_cost *d = &costs[decoder], *p = &costs[prefiller];
	double wait_ns = d->queue_ns - p->queue_ns - p->prefill_ns;

	return leg_ns(&set->items[prefiller], p) + moved_ns + (wait_ns > 0 ? wait_ns : 0) +
	       d->context_ns + d->evict_ns;
}

/* The same price, with a second more on a prefiller. */
static double here_ns(const struct kvw_candidate *item, const struct kvw_cost *cost)
{
	return whole_ns(cost) + (item->role == KVW_ROLE_PREFILL ? STRAY_NS : 0);
}

/* Tokens that the worker lacks. */
static double missing_of(const struct kvw_cost *cost, uint32_t prompt_tokens)
{
	double tokens = prompt_tokens - cached_of(cost);

	return tokens > 0 ? tokens : 0;
}

/* The best prefiller for the decoder i; SIZE_MAX: none, or it only prefills itself. */
static size_t partner_of(const struct kvw_candidates *set, const struct prefillers *p, size_t i)
{
	if (set->items[i].role == KVW_ROLE_PREFILL)
		return SIZE_MAX;
	return i == p->best ? p->second : p->best;
}

void kvw_split_price(const struct kvw_candidates *set, struct kvw_cost *costs,
	uint32_t prompt_tokens, const struct kvw_transfer *transfer)
{
	struct prefillers p = find_prefillers(set, costs);

	for (size_t i = 0; i < set->count; i++) {
		size_t prefiller = partner_of(set, &p, i);
		double price;

		if (!set->items[i].usable || costs[i].total_ns <= 0)
			continue;
		costs[i].total_ns = here_ns(&set->items[i], &costs[i]);
		if (prefiller == SIZE_MAX)
			continue;
		price = pair_ns(set, costs, i, prefiller,
			kvw_transfer_ns(transfer, missing_of(&costs[i], prompt_tokens)));
		if (price < costs[i].total_ns)
			costs[i].total_ns = price;
	}
}

/* Compares the worker i as the only worker, and as the decoder of a pair, with the best so far. */
static void look_at(const struct kvw_candidates *set, const struct kvw_cost *costs,
	uint32_t prompt_tokens, const struct kvw_transfer *transfer, size_t i, size_t prefiller,
	struct kvw_split *out)
{
	double tokens = missing_of(&costs[i], prompt_tokens);
	double moved_ns = kvw_transfer_ns(transfer, tokens);
	double whole = here_ns(&set->items[i], &costs[i]), price;

	if (!out->has_here || whole < out->here_ns) {
		out->has_here = true;
		out->here = i;
		out->here_ns = whole;
	}
	if (prefiller == SIZE_MAX)
		return;
	price = pair_ns(set, costs, i, prefiller, moved_ns);
	if (out->has_pair && price >= out->split_ns)
		return;
	out->has_pair = true;
	out->decoder = i;
	out->prefiller = prefiller;
	out->split_ns = price;
	out->transfer_ns = moved_ns;
	out->tokens = tokens;
}

void kvw_split_choose(const struct kvw_candidates *set, const struct kvw_cost *costs,
	uint32_t prompt_tokens, const struct kvw_transfer *transfer, int64_t threshold, size_t only,
	struct kvw_split *out)
{
	struct prefillers p = find_prefillers(set, costs);
	bool decoders = false;

	*out = (struct kvw_split){.split = false};
	for (size_t i = 0; i < set->count; i++) {
		if (!set->items[i].usable || (only != KVW_SPLIT_ANY && only != i))
			continue;
		decoders = decoders || set->items[i].role != KVW_ROLE_PREFILL;
		look_at(set, costs, prompt_tokens, transfer, i, partner_of(set, &p, i), out);
	}
	out->has_here = out->has_here && decoders;
	if (!out->has_pair)
		return;
	if (threshold >= 0)
		out->split = out->tokens >= (double)threshold;
	else /* a strategy that compares no costs knows no price */
		out->split = costs[out->prefiller].total_ns > 0 && out->split_ns < out->here_ns;
}
