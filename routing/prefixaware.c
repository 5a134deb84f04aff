/*
 * prefixaware.c - the worker on which this prompt costs everybody the least time.
 *
 *     cost(w) = Q_w + p_w + omega * p_w * n_w + c * T_w          all in nanoseconds
 *
 * Q_w: prefill that w was given and has not done (its load). p_w: prefill of what w lacks of this
 * prompt, by the prefix tree. n_w: its requests in flight, each of which p_w delays. The first two
 * terms are this request's time to first token, the third what it costs the others. T_w: tokens of
 * the prompts in flight there. For each token that it answers an engine reads all of them, so they
 * are what this request's answer will wait for; c is that time over an answer of some hundred tokens,
 * at part of its weight. A count of requests does not tell it: prompts differ a hundredfold. On a miss
 * everywhere it is least-work balancing; a prefix that many ask for is computed again elsewhere
 * exactly when the queue before it costs more than that. A wrong prefill rate cancels out as long
 * as it is equally wrong for all; how it is learned is told in rates.h. The lowest cost wins unless
 * a guard bars it (guards.h).
 *
 * Engines reuse whole blocks, and never the last token: a hit of h of n tokens counts as
 * min(h, n - 1) rounded down to blocks.
 *
 * The tree is told of the prompt at once, not when it is answered: the next request with the same
 * prefix comes before that and must find it. Ties go by rendezvous hash of the first chunk that
 * nobody holds, so the branches of one system prompt spread although they begin alike. Answers then
 * tell how much of a worker's cache predictions may count on (truth.h).
 *
 * Cost of a pick: one walk of the tree, a few ns per candidate, one insert; no allocation. What
 * depends on the number of workers is kept in arrays on the stack (45 KiB at 1,024).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "prefixaware.h"
#include "strategies.h"

#define MAX_COMPANY 16 /* running requests beside which a time to first token tells a rate */

static void prefixaware_destroy(struct kvw_strategy *self)
{
	struct kvw_prefixaware *pa = (struct kvw_prefixaware *)self;

	if (pa == NULL)
		return;
	kvw_radix_destroy(pa->tree);
	kvw_rates_finish(&pa->rates);
	free(pa);
}

static enum kvw_err prefixaware_create(
	const struct kvw_strategy_options *options, struct kvw_strategy **out)
{
	struct kvw_prefixaware *pa = aligned_alloc(64, sizeof(*pa));
	struct kvw_radix_options tree = {.bytes = options->tree_bytes, .seed = options->seed};
	struct kvw_prefill_model prior;

	if (pa == NULL)
		return KVW_ENOMEM;
	memset(pa, 0, sizeof(*pa));
	pa->base.ops = &kvw_prefixaware_ops;
	pa->capacity_tokens = options->capacity_tokens > 0 ? options->capacity_tokens : 1;
	pa->omega = options->omega;
	pa->context_ns = options->context_ns_per_token;
	kvw_guards_init(&pa->guards, options);
	kvw_truth_init(&pa->truth);
	kvw_prefill_model_init(&prior, options);
	if (kvw_rates_init(&pa->rates, &prior) != KVW_OK ||
		kvw_radix_create(&tree, &pa->tree) != KVW_OK) {
		prefixaware_destroy(&pa->base);
		return KVW_ENOMEM;
	}
	*out = &pa->base;
	return KVW_OK;
}

/* The lowest cost, unless a guard bars it and not all others. Some candidate is usable. */
static size_t choose(const struct kvw_prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, struct kvw_weighing *w, enum kvw_reason *reason)
{
	size_t pos = kvw_choose_lowest(set, w->costs, w->salt);
	enum kvw_reason bar = kvw_guards_bar(&pa->guards, &set->items[pos], w->mean);

	if (w->usable == 1) {
		*reason = KVW_REASON_ONLY;
		return pos;
	}
	if (bar != KVW_REASON_COUNT &&
		kvw_guards_open(&pa->guards, set, w->mean, w->costs, w->open) > 0) {
		*reason = bar;
		return kvw_choose_lowest(set, w->open, w->salt);
	}
	*reason = w->hits[pos] > 0         ? KVW_REASON_PREFIX
		  : request->content_known ? KVW_REASON_LOAD
					   : KVW_REASON_NO_CONTENT;
	return pos;
}

static struct kvw_decision decision_for(const struct kvw_route_request *request,
	const struct kvw_candidates *set, size_t pos, enum kvw_reason reason, int64_t now_ns,
	const struct kvw_weighing *w)
{
	const struct kvw_candidate *c = &set->items[pos];
	struct kvw_decision decision = {
		.pos = pos,
		.reason = reason,
		.prompt_tokens = w->tokens,
		.hit_tokens[KVW_TIER_DEVICE] = w->hits[pos],
		.queue_ns = kvw_load_queue_ns(c->load, now_ns),
		.inflight = (uint32_t)w->inflight[pos],
		.chains = w->chains,
		.worker_id = c->id,
	};
	double work = w->miss - w->saved[pos];

	if (w->chains == 0) {
		decision.prompt_tokens = kvw_request_tokens(request);
		work = 0;
		if (request->teaches)
			work = kvw_rates_work(w->pairs, decision.prompt_tokens, 0);
	}
	decision.prefill_ns = (int64_t)(work * w->x[pos]);
	return decision;
}

/* The chosen worker will hold all chains. */
static void teach(struct kvw_prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidate *chosen, int64_t now_ns, struct kvw_weighing *w)
{
	uint64_t told = chosen->capacity_tokens > 0 ? chosen->capacity_tokens : pa->capacity_tokens;
	struct kvw_radix_use use = {
		.worker = chosen->id,
		.capacity_tokens = kvw_truth_capacity(&pa->truth, chosen->id, told),
		.tokens_per_unit = request->tokens_per_unit,
		.now_ns = now_ns,
	};
	uint32_t begin = 0;

	for (uint32_t c = 0; c < w->chains; c++) {
		uint32_t end = request->chain_ends[c];

		if (request->chain_count > 1)
			kvw_radix_find(pa->tree, request->chunks + begin, end - begin, &w->path);
		kvw_radix_insert(pa->tree, request->chunks + begin, end - begin, &use, &w->path);
		begin = end;
	}
}

static enum kvw_err prefixaware_pick(struct kvw_strategy *self,
	const struct kvw_route_request *request, const struct kvw_candidates *set, int64_t now_ns,
	struct kvw_decision *out)
{
	struct kvw_prefixaware *pa = (struct kvw_prefixaware *)self;
	struct kvw_weighing w; /* filled as far as there are candidates and steps */
	enum kvw_reason reason = KVW_REASON_LOAD;
	size_t pos = 0;

	w.look = false;
	kvw_weigh(pa, request, set, now_ns, &w);
	if (w.usable == 0)
		return KVW_ENOWORKER;
	pos = choose(pa, request, set, &w, &reason);
	teach(pa, request, &set->items[pos], now_ns, &w);
	*out = decision_for(request, set, pos, reason, now_ns, &w);
	return KVW_OK;
}

/* What a guard makes of a candidate that is cheap enough. */
static enum kvw_verdict verdict_of_bar(enum kvw_reason bar)
{
	switch (bar) {
	case KVW_REASON_BOUND:
		return KVW_VERDICT_BOUND;
	case KVW_REASON_SLOW_START:
		return KVW_VERDICT_SLOW_START;
	case KVW_REASON_KV_FULL:
		return KVW_VERDICT_KV_FULL;
	default:
		return KVW_VERDICT_TIE;
	}
}

/* Fills costs from a finished weighing. */
static void tell_costs(const struct kvw_prefixaware *pa, const struct kvw_candidates *set,
	int64_t now_ns, size_t chosen, const struct kvw_weighing *w, struct kvw_cost *costs)
{
	double open[KVW_MAX_WORKERS];
	bool guarded = kvw_guards_open(&pa->guards, set, w->mean, w->costs, open) > 0;
	double limit = kvw_tie_limit(guarded ? open : w->costs, set->count);

	for (size_t i = 0; i < set->count; i++) {
		const struct kvw_candidate *c = &set->items[i];
		struct kvw_cost *cost = &costs[i];

		*cost = (struct kvw_cost){.verdict = KVW_VERDICT_UNUSABLE};
		cost->inflight = (uint32_t)w->inflight[i];
		cost->hit_tokens[KVW_TIER_DEVICE] = w->hits[i];
		cost->queue_ns = (double)kvw_load_queue_ns(c->load, now_ns);
		cost->context_ns = pa->context_ns * kvw_load_context(c->load);
		cost->prefill_ns = (w->miss - w->saved[i]) * w->x[i];
		cost->others_ns = cost->prefill_ns * w->omega * w->inflight[i];
		if (!c->usable)
			continue;
		cost->total_ns = w->costs[i];
		if (i == chosen)
			cost->verdict = KVW_VERDICT_CHOSEN;
		else if (w->costs[i] > limit)
			cost->verdict = KVW_VERDICT_COSTS_MORE;
		else
			cost->verdict =
				verdict_of_bar(guarded ? kvw_guards_bar(&pa->guards, c, w->mean)
						       : KVW_REASON_COUNT);
	}
}

static enum kvw_err prefixaware_explain(struct kvw_strategy *self,
	const struct kvw_route_request *request, const struct kvw_candidates *set, int64_t now_ns,
	struct kvw_cost *costs, struct kvw_decision *out)
{
	struct kvw_prefixaware *pa = (struct kvw_prefixaware *)self;
	struct kvw_weighing w;
	enum kvw_reason reason = KVW_REASON_LOAD;
	size_t pos = 0;

	w.look = true;
	kvw_weigh(pa, request, set, now_ns, &w);
	if (w.usable == 0)
		return KVW_ENOWORKER;
	pos = choose(pa, request, set, &w, &reason);
	tell_costs(pa, set, now_ns, pos, &w, costs);
	*out = decision_for(request, set, pos, reason, now_ns, &w);
	return KVW_OK;
}

/* Did this request have the worker's prefill to itself? A tenth of its own work does not matter. */
static bool was_alone(const struct kvw_decision *decision, const struct kvw_outcome *outcome)
{
	int64_t little = decision->prefill_ns / 10;

	return decision->inflight <= MAX_COMPANY && outcome->ahead_ns <= little &&
	       outcome->behind_ns <= little;
}

/* A time to first token that tells the worker's rate. */
static void learn_rate(struct kvw_prefixaware *pa, const struct kvw_decision *decision,
	const struct kvw_outcome *outcome)
{
	uint32_t prompt = outcome->prompt_known ? outcome->prompt_tokens : decision->prompt_tokens;
	uint32_t cached = outcome->cached_known ? outcome->cached_tokens
						: decision->hit_tokens[KVW_TIER_DEVICE];
	bool alone = was_alone(decision, outcome);

	if (cached >= prompt || (!outcome->cached_known && cached > prompt / 2))
		return; /* of a hit that was only predicted, too little is left to be sure of */
	kvw_rates_learn(
		&pa->rates, &(struct kvw_rate_sample){
				    .worker = decision->worker_id,
				    .prompt_tokens = prompt,
				    .cached_tokens = cached,
				    .ns = alone ? outcome->first_token_ns : outcome->served_ns,
				    .alone = alone,
			    });
}

static void prefixaware_done(struct kvw_strategy *self, const struct kvw_decision *decision,
	const struct kvw_outcome *outcome, int64_t now_ns)
{
	struct kvw_prefixaware *pa = (struct kvw_prefixaware *)self;

	(void)now_ns;
	if (decision->chains == 0 || outcome->status != 200)
		return;
	if (decision->chains == 1 && outcome->streamed && outcome->first_token)
		learn_rate(pa, decision, outcome);
	if (outcome->completed && outcome->cached_known)
		kvw_truth_learn(&pa->truth, decision->worker_id, outcome->prompt_tokens,
			decision->hit_tokens[KVW_TIER_DEVICE], outcome->cached_tokens);
}

static void prefixaware_purge(struct kvw_strategy *self, uint32_t worker_id)
{
	kvw_prefixaware_forget((struct kvw_prefixaware *)self, worker_id);
}

static void prefixaware_stats(struct kvw_strategy *self, struct kvw_strategy_stats *out)
{
	struct kvw_prefixaware *pa = (struct kvw_prefixaware *)self;

	*out = (struct kvw_strategy_stats){0};
	kvw_radix_stats(pa->tree, out);
}

static void prefixaware_learned(
	struct kvw_strategy *self, uint32_t worker_id, struct kvw_worker_learned *out)
{
	struct kvw_prefixaware *pa = (struct kvw_prefixaware *)self;

	*out = (struct kvw_worker_learned){0};
	kvw_rates_learned(&pa->rates, worker_id, out);
	out->capacity_share =
		atomic_load_explicit(&pa->truth.share[worker_id], memory_order_relaxed);
}

const struct kvw_strategy_ops kvw_prefixaware_ops = {
	.name = "prefixaware",
	.help = "where the prompt's prefix is cached, unless waiting there costs more",
	.wants_content = true,
	.create = prefixaware_create,
	.pick = prefixaware_pick,
	.explain = prefixaware_explain,
	.done = prefixaware_done,
	.purge = prefixaware_purge,
	.stats = prefixaware_stats,
	.learned = prefixaware_learned,
	.destroy = prefixaware_destroy,
};
