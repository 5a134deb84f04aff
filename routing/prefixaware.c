/*
 * prefixaware.c - the worker on which this prompt costs everybody the least time.
 *
 *     cost(w) = Q_w + p_w + omega * p_w * n_w          all in nanoseconds
 *
 * Q_w: prefill that w was given and has not done (its load). p_w: prefill of what w lacks of this
 * prompt, by the prefix tree. n_w: its requests in flight, each of which p_w delays. The first two
 * terms are this request's time to first token, the third what it costs the others. On a miss
 * everywhere it is least-work balancing; a prefix that many ask for is computed again elsewhere
 * exactly when the queue before it costs more than that. A wrong prefill rate cancels out as long
 * as it is equally wrong for all.
 *
 * Engines reuse whole blocks, and never the last token: a hit of h of n tokens counts as
 * min(h, n - 1) rounded down to blocks.
 *
 * The tree is told of the prompt at once, not when it is answered: the next request with the same
 * prefix comes before that and must find it. Ties go by rendezvous hash of the first chunk that
 * nobody holds, so the branches of one system prompt spread although they begin alike.
 *
 * Cost of a pick: one walk of the tree, a few ns per candidate, one insert; no allocation. What
 * depends on the number of workers is kept in arrays on the stack (32 KiB at 1,024).
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "choice.h"
#include "guards.h"
#include "radix.h"
#include "rates.h"
#include "strategies.h"
#include "truth.h"

#define DEFAULT_BLOCK 16  /* vLLM's block where the worker does not tell */
#define MAX_CHAINS    256 /* of a list of prompts; the rest is not looked up */
#define MAX_COMPANY   16  /* running requests beside which a time to first token tells a rate */

struct prefixaware {
	struct kvw_strategy base;
	double omega;
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
struct weighing {
	struct kvw_radix_path path;        /* of the last chain walked */
	struct kvw_radix_reach reach;      /* of the last chain walked */
	double costs[KVW_MAX_WORKERS];     /* first Q_w, then cost(w), ns */
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

static void prefixaware_destroy(struct kvw_strategy *self)
{
	struct prefixaware *pa = (struct prefixaware *)self;

	if (pa == NULL)
		return;
	kvw_radix_destroy(pa->tree);
	kvw_rates_finish(&pa->rates);
	free(pa);
}

static enum kvw_err prefixaware_create(
	const struct kvw_strategy_options *options, struct kvw_strategy **out)
{
	struct prefixaware *pa = aligned_alloc(64, sizeof(*pa));
	struct kvw_radix_options tree = {.bytes = options->tree_bytes, .seed = options->seed};
	struct kvw_prefill_model prior;

	if (pa == NULL)
		return KVW_ENOMEM;
	memset(pa, 0, sizeof(*pa));
	pa->base.ops = &kvw_prefixaware_ops;
	pa->capacity_tokens = options->capacity_tokens > 0 ? options->capacity_tokens : 1;
	pa->omega = options->omega;
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

static void forget(struct prefixaware *pa, uint32_t worker)
{
	kvw_radix_purge(pa->tree, worker);
	kvw_rates_restart(&pa->rates, worker);
	kvw_truth_restart(&pa->truth, worker);
}

/* Is a candidate's cache newer than what the tree knows? */
static bool is_newer(const struct prefixaware *pa, const struct kvw_candidate *c)
{
	uint32_t known = atomic_load_explicit(&pa->generations[c->id], memory_order_relaxed);

	return (int32_t)(c->generation - known) > 0;
}

/* A candidate of a newer generation than the tree knows has lost its cache. A loop with an older
 * snapshot of the fleet must not purge it again. */
static void note_generation(struct prefixaware *pa, const struct kvw_candidate *c)
{
	_Atomic uint32_t *generation = &pa->generations[c->id];
	uint32_t known = atomic_load_explicit(generation, memory_order_relaxed);

	while ((int32_t)(c->generation - known) > 0)
		if (atomic_compare_exchange_weak_explicit(generation, &known, c->generation,
			    memory_order_relaxed, memory_order_relaxed)) {
			forget(pa, c->id);
			break;
		}
}

/* Tokens of a chain that the engine will reuse if it holds its first `reach` chunks. */
static uint32_t usable_hit(const struct kvw_route_request *request, uint32_t begin, uint32_t reach,
	uint32_t tokens, uint32_t block)
{
	uint32_t hit = kvw_chain_tokens(request, begin, begin + reach);

	if (block == 0)
		block = DEFAULT_BLOCK;
	if (hit >= tokens)
		hit = tokens > 0 ? tokens - 1 : 0;
	/* A power of two nearly always, and then without a division. */
	return (block & (block - 1)) == 0 ? hit & ~(block - 1) : hit / block * block;
}

/* Place of a worker among the candidates; set->count: it is none of them. Ids are places in a
 * fleet that never lost a worker and serves one model. */
static size_t place_of(const struct kvw_candidates *set, uint32_t id)
{
	size_t low = 0;
	size_t high = set->count;

	if (id < set->count && set->items[id].id == id)
		return id;
	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (set->items[middle].id < id)
			low = middle + 1;
		else
			high = middle;
	}
	return low < set->count && set->items[low].id == id ? low : set->count;
}

/* The loads of all candidates. */
static void weigh_load(struct prefixaware *pa, const struct kvw_candidates *set, int64_t now_ns,
	struct weighing *w)
{
	const size_t count = set->count;
	uint64_t inflight = 0;
	size_t usable = 0;
	bool newer = false;

	memset(w->saved, 0, count * sizeof(w->saved[0]));
	memset(w->hits, 0, count * sizeof(w->hits[0]));
	for (size_t i = 0; i < count; i++) {
		const struct kvw_candidate *c = &set->items[i];
		uint32_t n = kvw_load_inflight(c->load);

		assert(c->id < KVW_MAX_WORKERS);
		newer |= is_newer(pa, c);
		usable += c->usable;
		inflight += c->usable ? n : 0;
		w->costs[i] = c->usable ? (double)kvw_load_queue_ns(c->load, now_ns) : KVW_NO_COST;
		w->inflight[i] = (int32_t)n;
		w->x[i] = kvw_rates_x(&pa->rates, c->id);
	}
	w->usable = usable;
	w->mean = usable > 0 ? (double)inflight / (double)usable : 0;
	if (newer && !w->look)
		for (size_t i = 0; i < count; i++)
			note_generation(pa, &set->items[i]);
}

/* Adds what each candidate's hit in one chain, whose path was found, saves it. */
static void weigh_chain(struct prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, uint32_t begin, uint32_t end, struct weighing *w)
{
	const struct kvw_chunk *chunks = request->chunks + begin;
	uint32_t tokens = kvw_chain_tokens(request, begin, end);
	double miss = kvw_rates_work(w->pairs, tokens, 0);
	uint32_t furthest = 0;

	w->tokens += tokens;
	w->miss += miss;
	kvw_radix_reach(pa->tree, chunks, end - begin, &w->path, &w->reach);
	for (uint32_t r = 0; r < w->reach.count; r++) {
		uint32_t id = w->reach.workers[r];
		uint32_t reach = w->reach.chunks[id];
		size_t i = place_of(set, id);
		uint32_t hit = 0;

		if (i == set->count || (w->look && is_newer(pa, &set->items[i])))
			continue; /* none of them, or a pick would purge it first */
		hit = usable_hit(request, begin, reach, tokens, set->items[i].block_size);
		w->hits[i] += hit;
		w->saved[i] += kvw_rates_work(w->pairs, hit, 0);
		if (reach > furthest && set->items[i].usable)
			furthest = reach;
	}
	if (end > begin)
		w->salt ^= chunks[furthest < end - begin ? furthest : furthest - 1].hash;
}

/* Chains beyond those that are looked up count as misses. */
static void weigh_rest(const struct kvw_route_request *request, uint32_t begin, struct weighing *w)
{
	for (uint32_t c = MAX_CHAINS; c < request->chain_count; c++) {
		uint32_t tokens = kvw_chain_tokens(request, begin, request->chain_ends[c]);

		w->tokens += tokens;
		w->miss += kvw_rates_work(w->pairs, tokens, 0);
		begin = request->chain_ends[c];
	}
}

/* A prompt that is understood. */
static void weigh_prompt(struct prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct weighing *w)
{
	uint32_t begin = 0;

	w->salt = request->seed;
	w->tokens = 0;
	w->miss = 0;
	w->omega = (float)pa->omega;
	w->chains = request->chain_count < MAX_CHAINS ? request->chain_count : MAX_CHAINS;
	w->pairs = atomic_load_explicit(&pa->rates.pairs, memory_order_relaxed);
	for (uint32_t c = 0; c < w->chains; c++) {
		uint32_t end = request->chain_ends[c];

		kvw_radix_find(pa->tree, request->chunks + begin, end - begin, &w->path);
		if (c == 0)
			weigh_load(pa, set, now_ns, w); /* while nodes arrive */
		weigh_chain(pa, request, set, begin, end, w);
		begin = end;
	}
	weigh_rest(request, begin, w);
}

/* A prompt of which nothing is known, or one that leaves nothing in the cache. */
static void weigh_blind(struct prefixaware *pa, const struct kvw_candidates *set, int64_t now_ns,
	struct weighing *w)
{
	w->salt = atomic_load_explicit(&pa->turn, memory_order_relaxed);
	if (!w->look)
		w->salt = atomic_fetch_add_explicit(&pa->turn, 1, memory_order_relaxed);
	w->tokens = 0;
	w->chains = 0;
	w->omega = (float)(pa->omega > KVW_MIN_OMEGA ? pa->omega : KVW_MIN_OMEGA);
	w->pairs = atomic_load_explicit(&pa->rates.pairs, memory_order_relaxed);
	w->miss = kvw_rates_work(w->pairs, KVW_UNKNOWN_TOKENS, 0);
	weigh_load(pa, set, now_ns, w);
}

static bool is_understood(const struct kvw_route_request *request)
{
	return request->content_known && request->teaches && request->chunk_count > 0;
}

static void weigh(struct prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct weighing *w)
{
	assert(set->count <= KVW_MAX_WORKERS);
	if (is_understood(request))
		weigh_prompt(pa, request, set, now_ns, w);
	else
		weigh_blind(pa, set, now_ns, w);
}

/* cost(w) = Q_w + p_w (1 + omega n_w). */
static void add_up(const struct kvw_candidates *set, struct weighing *w)
{
	const double miss = w->miss;
	const float omega = w->omega;

	for (size_t i = 0; i < set->count; i++)
		w->costs[i] += (miss - w->saved[i]) * (w->x[i] * (1 + omega * w->inflight[i]));
}

/* The lowest cost, unless a guard bars it and not all others. Some candidate is usable. */
static size_t choose(const struct prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, struct weighing *w, enum kvw_reason *reason)
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
	const struct weighing *w)
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
static void teach(struct prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidate *chosen, int64_t now_ns, struct weighing *w)
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
	struct prefixaware *pa = (struct prefixaware *)self;
	struct weighing w; /* filled as far as there are candidates and steps */
	enum kvw_reason reason = KVW_REASON_LOAD;
	size_t pos = 0;

	w.look = false;
	weigh(pa, request, set, now_ns, &w);
	if (w.usable == 0)
		return KVW_ENOWORKER;
	add_up(set, &w);
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
static void tell_costs(const struct prefixaware *pa, const struct kvw_candidates *set,
	int64_t now_ns, size_t chosen, const struct weighing *w, struct kvw_cost *costs)
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
	struct prefixaware *pa = (struct prefixaware *)self;
	struct weighing w;
	enum kvw_reason reason = KVW_REASON_LOAD;
	size_t pos = 0;

	w.look = true;
	weigh(pa, request, set, now_ns, &w);
	if (w.usable == 0)
		return KVW_ENOWORKER;
	add_up(set, &w);
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
static void learn_rate(struct prefixaware *pa, const struct kvw_decision *decision,
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
	struct prefixaware *pa = (struct prefixaware *)self;

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
	forget((struct prefixaware *)self, worker_id);
}

static void prefixaware_stats(struct kvw_strategy *self, struct kvw_strategy_stats *out)
{
	struct prefixaware *pa = (struct prefixaware *)self;

	*out = (struct kvw_strategy_stats){0};
	kvw_radix_stats(pa->tree, out);
}

static void prefixaware_learned(
	struct kvw_strategy *self, uint32_t worker_id, struct kvw_worker_learned *out)
{
	struct prefixaware *pa = (struct prefixaware *)self;

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
