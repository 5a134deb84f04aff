/*
 * prefixaware.c - chooses the worker on which the prompt costs all requests together the least
 * time.
 *
 *     cost(w) = max(Q_w, K_w) + p_w + omega * p_w * n_w + c * T_w          all in nanoseconds
 *
 * Q_w: prefill that w was given and has not done (its load). K_w: time until requests in flight
 * there have freed the KV memory that this prompt needs; 0 if it fits. p_w: prefill of the part of
 * this prompt that w lacks, by the prefix tree. n_w: its requests in flight, each of which p_w
 * delays. The first two terms are this request's time to first token, the third is the delay of the
 * others. T_w: tokens of the prompts in flight there. For each generated token an engine reads all
 * of them, so they delay this request's answer; c is that delay over an answer of some hundred
 * tokens, at part of its weight. A count of requests would not do: prompts differ a hundredfold.
 * Without hits this is least-work balancing; a popular prefix is recomputed elsewhere exactly when
 * the queue at its holders costs more than that. A wrong prefill rate cancels out as long as it is
 * equally wrong for all workers; rates.h describes how it is learned. The lowest cost wins unless a
 * guard bars it (guards.h).
 *
 * Engines reuse whole blocks, and never the last token: a hit of h of n tokens counts as
 * min(h, n - 1) rounded down to blocks.
 *
 * The prompt is inserted into the tree at the pick, not at its answer: the next request with the
 * same prefix arrives earlier and must find it. If the worker fails, the insertion is undone. A
 * rendezvous hash of the first chunk without a holder breaks ties, so the branches of one system
 * prompt spread although they begin alike. Answers teach the share of a worker's cache that
 * predictions assume (capacity_share.h).
 *
 * Cost of a pick: one walk of the tree, a few ns per candidate, one insert; no allocation. Arrays
 * over all workers lie on the stack (45 KiB at 1,024).
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "routing/prefetch.h"
#include "routing/prefixaware.h"
#include "routing/strategies.h"

#define UNSURE_TOKENS 128 /* possible error in tokens of a predicted hit, whatever its length */
#define MOST_AHEAD    4   /* limit of requests that a worker with a small share is made to skip */
#define MAX_COMPANY   16  /* with more running requests than this no rate is learned */

static void release_knowledge(struct kvw_prefix_knowledge *known)
{
	if (known == NULL ||
		atomic_fetch_sub_explicit(&known->users, 1, memory_order_acq_rel) > 1)
		return;
	kvw_radix_destroy(known->own);
	kvw_radix_destroy(known->interim);
	kvw_rates_finish(&known->rates);
	free(known);
}

/* NULL: no memory. */
static struct kvw_prefix_knowledge *make_knowledge(
	const struct kvw_strategy_options *options, const struct kvw_prefill_model *prior)
{
	struct kvw_radix_options tree = {.bytes = options->tree_bytes, .seed = options->seed};
	struct kvw_prefix_knowledge *known = aligned_alloc(64, sizeof(*known));

	if (known == NULL)
		return NULL;
	memset(known, 0, sizeof(*known));
	atomic_init(&known->users, 1);
	kvw_capacity_share_init(&known->capacity_share);
	known->own_bytes = tree.bytes;
	known->seed = tree.seed;
	if (kvw_rates_init(&known->rates, prior) == KVW_OK &&
		kvw_radix_create(&tree, &known->own) == KVW_OK) {
		atomic_init(&known->tree, known->own);
		return known;
	}
	release_knowledge(known);
	return NULL;
}

/* Returns what the replaced strategy has learned. NULL: nothing that can be used. */
static struct kvw_prefix_knowledge *inherit(
	const struct kvw_strategy *from, const struct kvw_prefill_model *prior)
{
	struct kvw_prefix_knowledge *known = NULL;

	/* Instances of other kinds do not begin with a struct kvw_prefixaware. */
	if (from == NULL || from->ops->learned != kvw_prefixaware_learned)
		return NULL;
	known = ((const struct kvw_prefixaware *)from)->known;
	atomic_fetch_add_explicit(&known->users, 1, memory_order_relaxed);
	kvw_rates_reconfigure(&known->rates, prior);
	return known;
}

void kvw_prefixaware_finish(struct kvw_prefixaware *pa)
{
	release_knowledge(pa->known);
}

/* Takes all options but the rates' prior. */
static void take_options(struct kvw_prefixaware *pa, const struct kvw_strategy_options *options)
{
	atomic_store_explicit(&pa->omega, options->omega, memory_order_relaxed);
	atomic_store_explicit(
		&pa->context_ns, options->context_ns_per_token, memory_order_relaxed);
	atomic_store_explicit(&pa->lockstep, options->lockstep, memory_order_relaxed);
	atomic_store_explicit(&pa->capacity_tokens,
		options->capacity_tokens > 0 ? options->capacity_tokens : 1, memory_order_relaxed);
	kvw_guards_set(&pa->guards, options);
}

void kvw_prefixaware_reconfigure(
	struct kvw_strategy *self, const struct kvw_strategy_options *options)
{
	struct kvw_prefixaware *pa = (struct kvw_prefixaware *)self;
	struct kvw_prefill_model prior;

	kvw_prefill_model_set(&prior, options);
	take_options(pa, options);
	kvw_rates_reconfigure(&pa->known->rates, &prior);
}

enum kvw_err kvw_prefixaware_init(struct kvw_prefixaware *pa, const struct kvw_strategy_ops *ops,
	const struct kvw_strategy_options *options)
{
	struct kvw_prefill_model prior;

	pa->base.ops = ops;
	take_options(pa, options);
	pa->kernel = kvw_weigh_kernel_best();
	kvw_prefill_model_set(&prior, options);
	pa->known = inherit(options->heir_of, &prior);
	if (pa->known == NULL)
		pa->known = make_knowledge(options, &prior);
	if (pa->known == NULL)
		return KVW_ENOMEM;
	return KVW_OK;
}

static void prefixaware_destroy(struct kvw_strategy *self)
{
	struct kvw_prefixaware *pa = (struct kvw_prefixaware *)self;

	if (pa == NULL)
		return;
	kvw_prefixaware_finish(pa);
	free(pa);
}

static enum kvw_err prefixaware_create(
	const struct kvw_strategy_options *options, struct kvw_strategy **out)
{
	struct kvw_prefixaware *pa = aligned_alloc(64, sizeof(*pa));

	if (pa == NULL)
		return KVW_ENOMEM;
	memset(pa, 0, sizeof(*pa));
	if (kvw_prefixaware_init(pa, &kvw_prefixaware_ops, options) != KVW_OK) {
		prefixaware_destroy(&pa->base);
		return KVW_ENOMEM;
	}
	*out = &pa->base;
	return KVW_OK;
}

/* Chooses like kvw_choose_lowest, by the costs of a finished weighing. */
static size_t lowest(const struct kvw_prefixaware *pa, const struct kvw_candidates *set,
	const struct kvw_weighing *w)
{
	double limit = kvw_tie_limit_of(w->lowest);
	uint16_t places[KVW_MAX_WORKERS];
	size_t count = 0;

	/* Mostly only workers that hold some of the prompt are cheap enough. */
	if (w->chains == 1 && w->block_size > 0 && w->unhit > limit) {
		count = pa->kernel->within(w->reached, w->reach.count, limit, places);
		for (size_t i = 0; i < count; i++)
			places[i] = (uint16_t)w->reach.workers[places[i]];
	} else {
		count = pa->kernel->within(w->costs, set->count, limit, places);
	}
	return kvw_choose_among(set, places, count, w->salt);
}

/* Returns a candidate's part of the requests: its credit for each request. */
static int32_t part_of(const struct kvw_candidate *c, const struct kvw_weighing *w)
{
	return (int32_t)(KVW_SHARE_ONE * (double)c->share / w->shares);
}

/* Returns whether a candidate with a small share got more than its share, by at least a request. */
static bool is_ahead(const struct kvw_prefixaware *pa, const struct kvw_candidate *c,
	const struct kvw_weighing *w)
{
	return c->share < 1 &&
	       atomic_load_explicit(&pa->ahead[c->id], memory_order_relaxed) - part_of(c, w) >
		       KVW_SHARE_ONE;
}

static enum kvw_reason bar_of(const struct kvw_prefixaware *pa, const struct kvw_candidate *c,
	const struct kvw_weighing *w)
{
	enum kvw_reason bar = kvw_guards_bar(&pa->guards, c, w->mean);

	if (bar == KVW_REASON_COUNT && w->by_share && is_ahead(pa, c, w))
		return KVW_REASON_SLOW_START;
	return bar;
}

/* Does the same as kvw_guards_open, but with bar_of, which also looks at shares. */
static size_t open_costs(const struct kvw_prefixaware *pa, const struct kvw_candidates *set,
	const struct kvw_weighing *w, double *open)
{
	size_t count = kvw_guards_open(&pa->guards, set, w->mean, w->costs, open);

	for (size_t i = 0; i < set->count && w->by_share; i++)
		if (open[i] < KVW_NO_COST && is_ahead(pa, &set->items[i], w)) {
			open[i] = KVW_NO_COST;
			count--;
		}
	return count;
}

/* Returns whether shares bar candidates. They do not if all candidates that pass the guards are
 * ahead of their shares. */
static bool counts_shares(const struct kvw_prefixaware *pa, const struct kvw_candidates *set,
	const struct kvw_weighing *w)
{
	for (size_t i = 0; i < set->count && w->shares > 0; i++)
		if (w->costs[i] < KVW_NO_COST && !is_ahead(pa, &set->items[i], w) &&
			kvw_guards_bar(&pa->guards, &set->items[i], w->mean) == KVW_REASON_COUNT)
			return true;
	return false;
}

/* Credits all candidates that have a small share with their parts of this request, and charges the
 * chosen one. */
static void count_shares(struct kvw_prefixaware *pa, const struct kvw_candidates *set, size_t pos,
	const struct kvw_weighing *w)
{
	for (size_t i = 0; i < set->count && w->shares > 0; i++) {
		const struct kvw_candidate *c = &set->items[i];
		_Atomic int32_t *ahead = &pa->ahead[c->id];
		int32_t was = 0;
		int32_t by = 0;

		if (c->share >= 1 || !c->usable)
			continue;
		was = atomic_load_explicit(ahead, memory_order_relaxed);
		do {
			by = was - part_of(c, w);
			by = (by > 0 ? by : 0) + (i == pos ? KVW_SHARE_ONE : 0);
			by = by < MOST_AHEAD * KVW_SHARE_ONE ? by : MOST_AHEAD * KVW_SHARE_ONE;
		} while (!atomic_compare_exchange_weak_explicit(
			ahead, &was, by, memory_order_relaxed, memory_order_relaxed));
	}
}

static struct kvw_choice choose_worker(const struct kvw_prefixaware *pa,
	const struct kvw_route_request *request, const struct kvw_candidates *set,
	struct kvw_weighing *w)
{
	size_t pos = lowest(pa, set, w);
	enum kvw_reason bar = bar_of(pa, &set->items[pos], w);

	if (w->usable == 1)
		return (struct kvw_choice){pos, KVW_REASON_ONLY};
	if (bar != KVW_REASON_COUNT && open_costs(pa, set, w, w->open) > 0)
		return (struct kvw_choice){kvw_choose_lowest(set, w->open, w->salt), bar};
	if (w->hits[pos] > 0)
		return (struct kvw_choice){pos, KVW_REASON_PREFIX};
	return (struct kvw_choice){
		pos, request->content_known ? KVW_REASON_LOAD : KVW_REASON_NO_CONTENT};
}

struct kvw_choice kvw_prefixaware_choose(struct kvw_prefixaware *pa,
	const struct kvw_route_request *request, const struct kvw_candidates *set,
	struct kvw_weighing *w)
{
	struct kvw_choice choice;

	w->lockstep = atomic_load_explicit(&pa->lockstep, memory_order_relaxed);
	if (w->lockstep)
		kvw_weigh_lockstep(set, w);
	w->by_share = w->shares > 0 && counts_shares(pa, set, w);
	choice = choose_worker(pa, request, set, w);
	if (w->shares > 0 && !w->look)
		count_shares(pa, set, choice.pos, w);
	return choice;
}

void kvw_prefixaware_decide(const struct kvw_route_request *request,
	const struct kvw_candidates *set, struct kvw_choice choice, int64_t now_ns,
	const struct kvw_weighing *w, struct kvw_decision *out)
{
	size_t pos = choice.pos;
	const struct kvw_candidate *c = &set->items[pos];
	double work = w->miss - kvw_weigh_saved(w, pos);

	*out = (struct kvw_decision){
		.pos = pos,
		.reason = choice.reason,
		.prompt_tokens = w->tokens,
		.hit_tokens[KVW_TIER_DEVICE] = w->hits[pos],
		.queue_ns = (int64_t)kvw_load_delay_ns(c->load, w->tokens, now_ns),
		.inflight = (uint32_t)w->inflight[pos],
		.chains = w->chains,
		.worker_id = c->id,
	};

	if (w->chains == 0) {
		out->prompt_tokens = kvw_request_tokens(request);
		work = 0;
		if (request->teaches)
			work = kvw_rates_work(w->pairs, out->prompt_tokens, 0);
	}
	out->prefill_ns = (int64_t)(work * w->x[pos]);
}

void kvw_prefixaware_teach(struct kvw_prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidate *chosen, int64_t now_ns, struct kvw_weighing *w)
{
	uint64_t reported = chosen->capacity_tokens > 0 ? chosen->capacity_tokens
							: atomic_load_explicit(&pa->capacity_tokens,
								  memory_order_relaxed);
	struct kvw_radix_use use = {
		.worker = chosen->id,
		.capacity_tokens = kvw_capacity_share_capacity(
			&pa->known->capacity_share, chosen->id, reported),
		.tokens_per_unit = request->tokens_per_unit,
		.now_ns = now_ns,
	};
	uint32_t begin = 0;

	kvw_radix_expect(w->tree, chosen->id);
	for (uint32_t c = 0; c < w->chains; c++) {
		uint32_t end = request->chain_ends[c];

		if (request->chain_count > 1)
			kvw_radix_find(w->tree, request->chunks + begin, end - begin, &w->path);
		kvw_radix_insert(w->tree, request->chunks + begin, end - begin, &use, &w->path);
		begin = end;
	}
	/* Prefetched for the lease only now: other loops read these lines all the time, and would
	 * fetch them back. */
	kvw_load_expect(chosen->load);
}

static enum kvw_err prefixaware_pick(struct kvw_strategy *self,
	const struct kvw_route_request *request, const struct kvw_candidates *set, int64_t now_ns,
	struct kvw_decision *out)
{
	struct kvw_prefixaware *pa = (struct kvw_prefixaware *)self;
	struct kvw_weighing w; /* filled only for candidates and steps that exist */
	struct kvw_choice choice;

	w.look = false;
	kvw_weigh_hits(pa, request, set, now_ns, &w);
	if (w.usable == 0)
		return KVW_ENOWORKER;
	choice = kvw_prefixaware_choose(pa, request, set, &w);
	kvw_prefixaware_teach(pa, request, &set->items[choice.pos], now_ns, &w);
	kvw_prefixaware_decide(request, set, choice, now_ns, &w, out);
	return KVW_OK;
}

/* Returns the verdict on a candidate that is cheap enough but barred. */
static enum kvw_verdict verdict_of_bar(enum kvw_reason bar)
{
	switch (bar) {
	case KVW_REASON_BOUND:
		return KVW_VERDICT_BOUND;
	case KVW_REASON_SLOW_START:
		return KVW_VERDICT_SLOW_START;
	default:
		return KVW_VERDICT_TIE;
	}
}

void kvw_prefixaware_report(const struct kvw_prefixaware *pa, const struct kvw_candidates *set,
	int64_t now_ns, size_t chosen, const struct kvw_weighing *w, struct kvw_cost *costs)
{
	double open[KVW_MAX_WORKERS];
	bool guarded = open_costs(pa, set, w, open) > 0;
	double limit = kvw_tie_limit(guarded ? open : w->costs, set->count);
	double context_ns = atomic_load_explicit(&pa->context_ns, memory_order_relaxed);

	for (size_t i = 0; i < set->count; i++) {
		const struct kvw_candidate *c = &set->items[i];
		struct kvw_cost *cost = &costs[i];

		*cost = (struct kvw_cost){.verdict = KVW_VERDICT_UNUSABLE};
		cost->inflight = (uint32_t)w->inflight[i];
		cost->hit_tokens[KVW_TIER_DEVICE] = w->hits[i];
		cost->queue_ns = kvw_load_delay_ns(c->load, w->tokens, now_ns);
		cost->room_ns = kvw_load_room_wait_ns(c->load, w->tokens);
		cost->context_ns = context_ns * kvw_load_context(c->load);
		cost->prefill_ns = (w->miss - kvw_weigh_saved(w, i)) * w->x[i];
		cost->others_ns = kvw_weigh_others(w, i, cost->prefill_ns);
		if (!c->usable)
			continue;
		cost->total_ns = w->costs[i];
		if (i == chosen)
			cost->verdict = KVW_VERDICT_CHOSEN;
		else if (w->costs[i] > limit)
			cost->verdict = KVW_VERDICT_COSTS_MORE;
		else
			cost->verdict =
				verdict_of_bar(guarded ? bar_of(pa, c, w) : KVW_REASON_COUNT);
	}
}

static enum kvw_err prefixaware_explain(struct kvw_strategy *self,
	const struct kvw_route_request *request, const struct kvw_candidates *set, int64_t now_ns,
	struct kvw_cost *costs, struct kvw_decision *out)
{
	struct kvw_prefixaware *pa = (struct kvw_prefixaware *)self;
	struct kvw_weighing w;
	struct kvw_choice choice;

	w.look = true;
	kvw_weigh_hits(pa, request, set, now_ns, &w);
	if (w.usable == 0)
		return KVW_ENOWORKER;
	choice = kvw_prefixaware_choose(pa, request, set, &w);
	kvw_prefixaware_report(pa, set, now_ns, choice.pos, &w, costs);
	kvw_prefixaware_decide(request, set, choice, now_ns, &w, out);
	return KVW_OK;
}

/* Returns whether no other prefill ran together with this request's. Others of less than a tenth of
 * its work are ignored. */
static bool was_alone(const struct kvw_decision *decision, const struct kvw_outcome *outcome)
{
	int64_t little = decision->prefill_ns / 10;

	return decision->inflight <= MAX_COMPANY && outcome->ahead_ns <= little &&
	       outcome->behind_ns <= little;
}

/* Returns the tokens of the predicted hit over all tiers. */
static uint32_t predicted_hit(const struct kvw_decision *decision)
{
	uint32_t hit = 0;

	for (unsigned t = 0; t < KVW_TIER_COUNT; t++)
		hit += decision->hit_tokens[t];
	return hit;
}

/* Returns whether more tokens were cached than the device was known to have: the rest may have been
 * loaded from lower tiers, whose time is not prefill. Predictions are exact only to some blocks. */
static bool came_from_elsewhere(
	const struct kvw_decision *decision, const struct kvw_outcome *outcome, uint32_t prompt)
{
	return outcome->cached_known &&
	       outcome->cached_tokens > predicted_hit(decision) + prompt / 16 + UNSURE_TOKENS;
}

/* Learns the worker's rate from a time to first token. */
static void learn_rate(struct kvw_prefixaware *pa, const struct kvw_decision *decision,
	const struct kvw_outcome *outcome)
{
	uint32_t prompt = outcome->prompt_known ? outcome->prompt_tokens : decision->prompt_tokens;
	uint32_t cached = outcome->cached_known ? outcome->cached_tokens : predicted_hit(decision);
	bool alone = was_alone(decision, outcome);

	if (cached >= prompt || (!outcome->cached_known && cached > prompt / 2))
		return; /* too little work beyond the possible error of the predicted hit */
	if (came_from_elsewhere(decision, outcome, prompt))
		return;
	kvw_rates_learn(
		&pa->known->rates, &(struct kvw_rate_sample){
				    .worker = decision->worker_id,
				    .prompt_tokens = prompt,
				    .cached_tokens = cached,
				    .ns = alone ? outcome->first_token_ns : outcome->served_ns,
				    .alone = alone,
			    });
}

/* Returns how many leading chunks of a chain a predicted hit covers. Uses the length that the
 * prompt was predicted to have, since bytes per token may have changed since. */
static uint32_t chunks_of_hit(
	const struct kvw_chunk *chunks, uint32_t count, uint32_t hit, uint32_t prompt_tokens)
{
	double per_unit =
		chunks[count - 1].end > 0 ? prompt_tokens / (double)chunks[count - 1].end : 0;
	uint32_t kept = 0;

	while (kept < count && hit > 0 &&
		(kept == 0 || chunks[kept - 1].end * per_unit + 1 <= hit))
		kept++;
	return kept;
}

/* Undoes the pick's insertion into the tree. The worker's earlier blocks stay: the predicted hit.
 * Of several chains only the sum is known, so a hit in any of them keeps all. A request for the
 * same prefix that the worker did serve meanwhile is forgotten, too, until the next one. */
static void unteach(struct kvw_prefixaware *pa, const struct kvw_decision *decision,
	const struct kvw_route_request *request)
{
	struct kvw_radix_path path; /* filled only for steps that exist */
	uint32_t hit = predicted_hit(decision);
	uint32_t begin = 0;

	if (decision->chains > request->chain_count || (decision->chains > 1 && hit > 0))
		return;
	for (uint32_t c = 0; c < decision->chains; c++) {
		uint32_t end = request->chain_ends[c];
		const struct kvw_chunk *chunks = request->chunks + begin;

		if (end > begin)
			kvw_radix_retract(kvw_prefixaware_tree(pa), chunks, end - begin,
				chunks_of_hit(chunks, end - begin, hit, decision->prompt_tokens),
				decision->worker_id, &path);
		begin = end;
	}
}

void kvw_prefixaware_done(struct kvw_strategy *self, const struct kvw_decision *decision,
	const struct kvw_outcome *outcome, int64_t now_ns)
{
	struct kvw_prefixaware *pa = (struct kvw_prefixaware *)self;

	(void)now_ns;
	if (outcome->unserved != NULL)
		unteach(pa, decision, outcome->unserved);
	if (decision->chains == 0 || outcome->status != 200)
		return;
	/* Loading from lower tiers took time that is not prefill. */
	if (decision->chains == 1 && outcome->streamed && outcome->first_token &&
		decision->fragment_tokens == 0 &&
		predicted_hit(decision) == decision->hit_tokens[KVW_TIER_DEVICE])
		learn_rate(pa, decision, outcome);
	/* Predictions from a worker's own events do not show how much of its capacity the tree may
	 * assume. */
	if (outcome->completed && outcome->cached_known && !decision->exact)
		kvw_capacity_share_learn(&pa->known->capacity_share, decision->worker_id,
			outcome->prompt_tokens, decision->hit_tokens[KVW_TIER_DEVICE],
			outcome->cached_tokens);
}

static void prefixaware_purge(struct kvw_strategy *self, uint32_t worker_id)
{
	kvw_prefixaware_forget((struct kvw_prefixaware *)self, worker_id);
}

void kvw_prefixaware_stats(struct kvw_strategy *self, struct kvw_strategy_stats *out)
{
	struct kvw_prefixaware *pa = (struct kvw_prefixaware *)self;
	struct kvw_radix *tree = kvw_prefixaware_tree(pa);

	*out = (struct kvw_strategy_stats){0};
	kvw_radix_stats(tree, out);
	kvw_prefixaware_add_other(pa, tree, out);
}

void kvw_prefixaware_learned(
	struct kvw_strategy *self, uint32_t worker_id, struct kvw_worker_learned *out)
{
	struct kvw_prefixaware *pa = (struct kvw_prefixaware *)self;

	*out = (struct kvw_worker_learned){0};
	kvw_rates_learned(&pa->known->rates, worker_id, out);
	out->capacity_share = atomic_load_explicit(
		&pa->known->capacity_share.share[worker_id], memory_order_relaxed);
}

const struct kvw_strategy_ops kvw_prefixaware_ops = {
	.name = "prefixaware",
	.help = "where the prompt's prefix is cached, unless waiting there costs more",
	.prepare = KVW_PREPARE_CONTENT,
	.create = prefixaware_create,
	.pick = prefixaware_pick,
	.explain = prefixaware_explain,
	.reconfigure = kvw_prefixaware_reconfigure,
	.done = kvw_prefixaware_done,
	.purge = prefixaware_purge,
	.stats = kvw_prefixaware_stats,
	.learned = kvw_prefixaware_learned,
	.keep = kvw_prefixaware_keep,
	.recall = kvw_prefixaware_recall,
	.recall_aside = kvw_prefixaware_recall_aside,
	.destroy = prefixaware_destroy,
};
