/*
 * kvaware.c - prefixaware with hits from the workers' own events instead of from routed prompts.
 *
 * The cost, the guards, the learned rates and the prefix tree are those of prefixaware.c; only the
 * source of hits differs, worker by worker:
 *
 *   engine reports all       what its engine holds of the prompt's blocks, and from there on what
 *                            LMCache behind it holds, if that reports all too
 *   only LMCache does        what LMCache holds, which is less than the engine may find
 *   neither, or the prompt's
 *   tokens are not known     the prefix tree's guess; the tree is fed in any case
 *
 * So a fleet that publishes no events is routed as by prefixaware, and a worker whose events were
 * lost is no worse off than there.
 *
 * Engines never reuse a prompt's last token: a hit of h of n tokens counts as min(h, n - 1), in the
 * engine's own cache rounded down to blocks. Blocks in lower tiers are fetched first: that time
 * reduces the saving of the hit, and if fetching takes longer than computing these tokens, they
 * save nothing. Both are counted in one unit: saved work in tokens, a nanosecond of loading as 1 /
 * x of a token.
 *
 * Blocks of sent requests that are not yet published are found as claims (claims.h).
 *
 * A full engine's cache evicts a token for each token that it computes, and an evicted token that
 * is needed again has to be recomputed. So a worker's cost includes eviction_weight times the
 * prefill time of the tokens that the prompt would evict there. While caches have room this term is
 * 0 and new prompts spread; among full caches it favours the worker with the prefix.
 *
 * The index knows the leading blocks of a worker, but of LMCache's blocks only the number in each
 * tier. The blocks that the engine does not need from LMCache are assumed to be in the fastest
 * tiers.
 *
 * If a worker blends, texts lately sent to it count after its hit, at any position (fragments.h):
 * they save their prefill time less the share that is recomputed, less loading and moving. Off by
 * default: then there is no table, and a pick pays one branch.
 *
 * Cost of a pick: that of prefixaware, and one walk of the index per block size and hash recipe in
 * the fleet. No allocation; 130 KiB of stack at most.
 */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "routing/claims.h"
#include "routing/exact.h"
#include "routing/fragments.h"
#include "routing/prefixaware.h"
#include "routing/strategies.h"

/* A claim lasts this many times the predicted time until the prompt is computed, and then until the
 * report arrives: engines publish at each step, LMCache's servers store afterwards and report once
 * a second (--coordinator-event-flush-interval). */
#define CLAIM_FACTOR     1.5
#define CLAIM_ENGINE_NS  INT64_C(500000000)
#define CLAIM_LMCACHE_NS INT64_C(2000000000)

struct kvaware {
	struct kvw_prefixaware pa; /* first */
	struct kvw_exact *exact;

	/* Options are relaxed atomics, since they may change while requests are routed. */
	_Atomic double load_ns[KVW_TIER_COUNT]; /* per token */
	_Atomic double eviction_weight;

	/* Table of texts that workers may reuse at any position. */
	struct kvw_fragments *fragments; /* NULL: off */
	_Atomic uint64_t fragment_held;
	_Atomic uint32_t fragment_min_tokens;
	_Atomic double fragment_ns, fragment_share;
	/* The generation of each worker's cache to which the table's entries belong. */
	_Alignas(64) _Atomic uint32_t fragment_generations[KVW_MAX_WORKERS];
};

/* Which reporters' events count for a worker. */
enum word {
	WORD_TREE,    /* no reporter: the prefix tree guesses */
	WORD_LMCACHE, /* its LMCache alone */
	WORD_ENGINE,  /* its engine alone */
	WORD_BOTH,
};

#define NO_CHAIN KVW_EXACT_CHAINS

enum { REASON_FRAGMENTS }; /* own reasons */

/* The workers' reports about one prompt. Indices are the candidates'; for candidates with WORD_TREE
 * no other member is set. */
struct view {
	bool any; /* some worker's word is not WORD_TREE */
	bool all; /* no usable worker's word is; only set with `any` */
	uint8_t word[KVW_MAX_WORKERS];
	/* the chain in which the worker's hit reaches furthest; the first among equals */
	uint8_t chain[KVW_MAX_WORKERS];
	/* number of blocks of that chain that are held or claimed */
	uint32_t held[KVW_MAX_WORKERS];
	double evict_ns[KVW_MAX_WORKERS];
	/* some worker is assumed to hold texts; only then the next two members are set */
	bool blended;
	uint32_t fragment_tokens[KVW_MAX_WORKERS]; /* after its hit */
	double fragment_work[KVW_MAX_WORKERS];     /* work that these texts save */
	uint32_t tokens[KVW_MAX_WORKERS][KVW_TIER_COUNT];
	struct kvw_kvindex_hits hits; /* hits in the chain that was matched last */
};

static void kvaware_destroy(struct kvw_strategy *self)
{
	struct kvaware *ka = (struct kvaware *)self;

	if (ka == NULL)
		return;
	kvw_exact_destroy(ka->exact);
	kvw_fragments_destroy(ka->fragments);
	kvw_prefixaware_finish(&ka->pa);
	free(ka);
}

/* Takes the options that prefixaware does not have. */
static void take_options(struct kvaware *ka, const struct kvw_strategy_options *options)
{
	for (unsigned t = KVW_TIER_DEVICE + 1; t < KVW_TIER_COUNT; t++)
		atomic_store_explicit(
			&ka->load_ns[t], options->load_ns_per_token[t], memory_order_relaxed);
	atomic_store_explicit(
		&ka->eviction_weight, options->eviction_weight, memory_order_relaxed);
	atomic_store_explicit(&ka->fragment_held, options->fragment_held, memory_order_relaxed);
	atomic_store_explicit(
		&ka->fragment_min_tokens, options->fragment_min_tokens, memory_order_relaxed);
	atomic_store_explicit(
		&ka->fragment_ns, options->fragment_ns_per_token, memory_order_relaxed);
	atomic_store_explicit(&ka->fragment_share, options->fragment_share, memory_order_relaxed);
}

static void kvaware_reconfigure(
	struct kvw_strategy *self, const struct kvw_strategy_options *options)
{
	take_options((struct kvaware *)self, options);
	kvw_prefixaware_reconfigure(self, options);
}

static enum kvw_err kvaware_create(
	const struct kvw_strategy_options *options, struct kvw_strategy **out)
{
	struct kvaware *ka = aligned_alloc(64, sizeof(*ka));

	if (ka == NULL)
		return KVW_ENOMEM;
	memset(ka, 0, sizeof(*ka));
	take_options(ka, options);
	if (kvw_prefixaware_init(&ka->pa, &kvw_kvaware_ops, options) != KVW_OK ||
		kvw_exact_create(options, &ka->exact) != KVW_OK ||
		(options->fragments &&
			kvw_fragments_create(options->fragment_bytes, &ka->fragments) != KVW_OK)) {
		kvaware_destroy(&ka->pa.base);
		return KVW_ENOMEM;
	}
	*out = &ka->pa.base;
	return KVW_OK;
}

/* --- what workers say --- */

/* Chooses which reporters count for each worker, among those for whose keys the request has a
 * chain. */
static void choose_reporter(const struct kvaware *ka, const struct kvw_route_request *request,
	const struct kvw_candidates *set, struct view *view)
{
	unsigned words = WORD_TREE;

	for (uint32_t c = 0; c < request->exact_count; c++)
		words |= request->exact[c].reporter == KVW_REPORTER_ENGINE ? WORD_ENGINE
									   : WORD_LMCACHE;
	view->any = false;
	view->all = true;
	for (size_t i = 0; i < set->count && words != WORD_TREE; i++) {
		uint32_t id = set->items[i].id;
		unsigned full = WORD_TREE;

		if (kvw_exact_coverage(ka->exact, id, KVW_REPORTER_ENGINE) == KVW_COVERAGE_FULL)
			full |= WORD_ENGINE;
		if (kvw_exact_coverage(ka->exact, id, KVW_REPORTER_LMCACHE) == KVW_COVERAGE_FULL)
			full |= WORD_LMCACHE;
		view->word[i] = (uint8_t)(full & words);
		view->chain[i] = NO_CHAIN;
		view->held[i] = 0;
		view->evict_ns[i] = 0;
		memset(view->tokens[i], 0, sizeof(view->tokens[i]));
		view->any |= view->word[i] != WORD_TREE;
		view->all &= view->word[i] != WORD_TREE || !set->items[i].usable;
	}
}

static uint32_t sum_of(const uint32_t tokens[KVW_TIER_COUNT])
{
	uint32_t sum = 0;

	for (unsigned t = 0; t < KVW_TIER_COUNT; t++)
		sum += tokens[t];
	return sum;
}

/* Takes tokens off the end of a hit, first from the tier of its last block. */
static void shorten(uint32_t tokens[KVW_TIER_COUNT], unsigned last, uint32_t by)
{
	uint32_t part = by < tokens[last] ? by : tokens[last];

	tokens[last] -= part;
	by -= part;
	for (unsigned t = KVW_TIER_COUNT; t-- > 0 && by > 0;) {
		part = by < tokens[t] ? by : tokens[t];
		tokens[t] -= part;
		by -= part;
	}
}

/* Returns how many tokens of a hit in one chain are reused; `tokens` gets them by tier. */
static uint32_t reused(const struct kvw_exact_chain *chain, const struct kvw_kvindex_hits *hits,
	uint32_t id, uint32_t prompt, uint32_t tokens[KVW_TIER_COUNT])
{
	uint32_t hit = 0;
	uint32_t most = prompt > 0 ? prompt - 1 : 0;

	memcpy(tokens, hits->tokens[id], sizeof(hits->tokens[id]));
	hit = sum_of(tokens);
	if (hit <= most)
		return hit;
	if (chain->reporter == KVW_REPORTER_ENGINE)
		most = most / chain->block_tokens * chain->block_tokens;
	shorten(tokens, hits->tier[id], hit - most);
	return most;
}

/* Extends a hit by the tokens by which a longer one goes beyond it. */
static void lengthen(uint32_t tokens[KVW_TIER_COUNT], uint32_t more[KVW_TIER_COUNT])
{
	uint32_t skip = sum_of(tokens);

	for (unsigned t = 0; t < KVW_TIER_COUNT; t++) {
		uint32_t part = skip < more[t] ? skip : more[t];

		skip -= part;
		tokens[t] += more[t] - part;
	}
}

/* Extends the candidates' hits by those in one chain, if they reach further. */
static void take_chain(const struct kvw_route_request *request, uint32_t c, unsigned words,
	const struct kvw_candidates *set, struct view *view)
{
	const struct kvw_exact_chain *chain = &request->exact[c];

	for (size_t i = 0; i < set->count; i++) {
		uint32_t id = set->items[i].id;
		uint32_t more[KVW_TIER_COUNT];

		if ((view->word[i] & words) == 0 || view->hits.blocks[id] == 0)
			continue;
		if (reused(chain, &view->hits, id, request->exact_tokens, more) <=
			sum_of(view->tokens[i]))
			continue;
		if (chain->reporter == KVW_REPORTER_ENGINE)
			memcpy(view->tokens[i], more, sizeof(more));
		else
			lengthen(view->tokens[i], more);
		/* If the engine does not report, claims are kept under LMCache's keys. */
		if (chain->reporter == KVW_REPORTER_ENGINE || view->word[i] == WORD_LMCACHE) {
			view->chain[i] = (uint8_t)c;
			view->held[i] = view->hits.blocks[id];
		}
	}
}

static void match_chains(const struct kvaware *ka, const struct kvw_route_request *request,
	enum kvw_reporter reporter, int64_t now_ns, const struct kvw_candidates *set,
	struct view *view)
{
	unsigned words = reporter == KVW_REPORTER_ENGINE ? WORD_ENGINE : WORD_LMCACHE;

	for (uint32_t c = 0; c < request->exact_count; c++) {
		const struct kvw_exact_chain *chain = &request->exact[c];

		if (chain->reporter != reporter || chain->count == 0)
			continue;
		kvw_exact_match(ka->exact, chain, &view->hits);
		kvw_claims_extend(kvw_exact_claims(ka->exact), chain, now_ns, &view->hits);
		take_chain(request, c, words, set, view);
	}
}

/* --- effect on the weighing --- */

/* Returns the work that a hit saves a worker that needs x ns for a token of work. */
static double saved_by(
	const struct kvaware *ka, const uint32_t tokens[KVW_TIER_COUNT], double pairs, double x)
{
	double saved = 0;
	double at = 0;

	for (unsigned t = 0; t < KVW_TIER_COUNT; t++) {
		double work = kvw_rates_work(pairs, at + tokens[t], at);
		double load_ns = atomic_load_explicit(&ka->load_ns[t], memory_order_relaxed);
		double load = x > 0 ? tokens[t] * load_ns / x : 0;

		saved += work > load ? work - load : 0;
		at += tokens[t];
	}
	return saved;
}

/* Returns the request with the exact length of the prompt, so that the tree's hits are measured by
 * it, too. */
static struct kvw_route_request measured(const struct kvw_route_request *request)
{
	struct kvw_route_request exactly = *request;
	uint32_t units = 0;

	if (request->exact_tokens > 0 && request->chain_count == 1 && request->chunk_count > 0)
		units = request->chunks[request->chunk_count - 1].end;
	if (units > 0)
		exactly.tokens_per_unit = (float)((double)request->exact_tokens / units);
	return exactly;
}

/* Returns how many tokens the prompt would evict from an engine's cache. */
static double pushed_out(const struct kvaware *ka, const struct kvw_candidate *c,
	const struct kvw_weighing *w, size_t i)
{
	uint32_t fresh = w->tokens > w->hits[i] ? w->tokens - w->hits[i] : 0;
	uint64_t held = (uint64_t)kvw_exact_held(ka->exact, c->id) * c->block_size;
	uint64_t room = held < c->capacity_tokens ? c->capacity_tokens - held : 0;

	return c->capacity_tokens == 0 || fresh <= room ? 0 : (double)(fresh - room);
}

/* --- texts that are no prefix --- */

/* Purges the table of a worker with a newer generation, which has lost its cache. */
static void note_generation(struct kvaware *ka, const struct kvw_candidate *c)
{
	_Atomic uint32_t *generation = &ka->fragment_generations[c->id];
	uint32_t known = atomic_load_explicit(generation, memory_order_relaxed);

	while ((int32_t)(c->generation - known) > 0)
		if (atomic_compare_exchange_weak_explicit(generation, &known, c->generation,
			    memory_order_relaxed, memory_order_relaxed)) {
			kvw_fragments_purge(ka->fragments, c->id);
			break;
		}
}

/* Returns whether the worker reuses fragments, and the table's entries describe its present
 * cache. */
static bool may_blend(const struct kvaware *ka, const struct kvw_candidate *c)
{
	uint32_t known =
		atomic_load_explicit(&ka->fragment_generations[c->id], memory_order_relaxed);

	return c->blends && (int32_t)(c->generation - known) <= 0;
}

/* Computes the position of a segment in the prompt, in tokens; false: the segment is too short to
 * count. */
static bool place_of(const struct kvaware *ka, const struct kvw_route_request *request,
	const struct kvw_segment *segment, uint32_t *from, uint32_t *to)
{
	uint32_t least = atomic_load_explicit(&ka->fragment_min_tokens, memory_order_relaxed);

	*from = (uint32_t)(segment->from * request->tokens_per_unit);
	*to = (uint32_t)(segment->to * request->tokens_per_unit);
	return *to > *from && *to - *from >= least;
}

/* Counts tokens [from, to) as held by a candidate, except those within its hit. */
static void take_segment(const struct kvaware *ka, size_t i, uint32_t from, uint32_t to,
	const struct kvw_weighing *w, struct view *view)
{
	uint32_t first = from > w->hits[i] ? from : w->hits[i];
	double share = atomic_load_explicit(&ka->fragment_share, memory_order_relaxed);
	double ns = atomic_load_explicit(&ka->fragment_ns, memory_order_relaxed);
	double saved;

	if (first >= to || !(w->x[i] > 0))
		return;
	saved = kvw_rates_work(w->pairs, to, first) * (1 - share) - (to - first) * ns / w->x[i];
	if (saved <= 0)
		return; /* computing is faster than loading */
	view->fragment_tokens[i] += to - first;
	view->fragment_work[i] += saved;
	view->blended = true;
}

/* Subtracts from the costs what fragments save. */
static void weigh_fragments(struct kvaware *ka, const struct kvw_route_request *request,
	const struct kvw_candidates *set, struct kvw_weighing *w, struct view *view)
{
	uint64_t held = atomic_load_explicit(&ka->fragment_held, memory_order_relaxed);
	uint32_t from, to;

	for (size_t i = 0; i < set->count; i++) {
		view->fragment_tokens[i] = 0;
		view->fragment_work[i] = 0;
		if (!w->look)
			note_generation(ka, &set->items[i]);
	}
	for (uint32_t s = 0; s < request->segment_count; s++) {
		uint32_t workers[KVW_FRAGMENT_HOLDERS], count = 0;

		if (!place_of(ka, request, &request->segments[s], &from, &to))
			continue;
		count = kvw_fragments_find(ka->fragments, request->segments[s].hash, held, workers);
		for (uint32_t k = 0; k < count; k++) {
			size_t i = kvw_place_from(set, workers[k]);

			if (i < set->count && set->items[i].id == workers[k] &&
				may_blend(ka, &set->items[i]))
				take_segment(ka, i, from, to, w, view);
		}
	}
	if (!view->blended)
		return;
	for (size_t i = 0; i < set->count; i++)
		w->costs[i] -= view->fragment_work[i] * kvw_weigh_each(w, i);
	w->lowest = kvw_lowest(w->costs, set->count);
	w->unhit = w->lowest;
}

/* Records that the chosen worker will hold the prompt's texts. */
static void teach_fragments(struct kvaware *ka, const struct kvw_route_request *request,
	const struct kvw_candidate *chosen)
{
	uint64_t held = atomic_load_explicit(&ka->fragment_held, memory_order_relaxed);
	uint32_t from, to;

	for (uint32_t s = 0; s < request->segment_count && chosen->blends; s++)
		if (place_of(ka, request, &request->segments[s], &from, &to))
			kvw_fragments_teach(ka->fragments, request->segments[s].hash, to - from,
				chosen->id, held);
}

/* --- the weighing --- */

/* Weighs all candidates; fills w and the view. If no worker is usable, w->usable is 0. */
static void weigh(struct kvaware *ka, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct kvw_weighing *w, struct view *view)
{
	double before = 0; /* work that the tree's hits save */
	double eviction_weight = atomic_load_explicit(&ka->eviction_weight, memory_order_relaxed);

	view->any = view->blended = false;
	kvw_weigh_hits(&ka->pa, request, set, now_ns, w);
	if (w->usable == 0)
		return;
	if (w->chains == 1 && request->chain_count == 1 && request->exact_tokens > 0)
		choose_reporter(ka, request, set, view);
	if (view->any) {
		match_chains(ka, request, KVW_REPORTER_ENGINE, now_ns, set, view);
		match_chains(ka, request, KVW_REPORTER_LMCACHE, now_ns, set, view);
	}
	for (size_t i = 0; i < set->count && view->any; i++) {
		if (view->word[i] == WORD_TREE)
			continue;
		before = kvw_weigh_saved(w, i);
		w->hits[i] = sum_of(view->tokens[i]);
		w->saved[i] = saved_by(ka, view->tokens[i], w->pairs, w->x[i]);
		if ((view->word[i] & WORD_ENGINE) != 0)
			view->evict_ns[i] = eviction_weight * w->x[i] *
					    pushed_out(ka, &set->items[i], w, i);
		w->costs[i] +=
			view->evict_ns[i] + (before - kvw_weigh_saved(w, i)) * kvw_weigh_each(w, i);
	}
	if (view->any) {
		w->lowest = kvw_lowest(w->costs, set->count);
		w->unhit = w->lowest;
	}
	if (ka->fragments != NULL && w->chains == 1)
		weigh_fragments(ka, request, set, w, view);
}

static bool is_exact(const struct view *view, size_t pos)
{
	return view->any && view->word[pos] != WORD_TREE;
}

/* Returns how much was known of one worker's cache. */
static enum kvw_knowledge knowledge_of(const struct kvaware *ka,
	const struct kvw_route_request *request, const struct kvw_candidates *set,
	const struct view *view, size_t i)
{
	enum kvw_knowledge knowledge;

	if (request->inexact == KVW_INEXACT_NOT_WANTED)
		return KVW_KNOWS_NOT_ASKED;
	if (request->inexact == KVW_INEXACT_NO_CHOICE)
		return KVW_KNOWS_NO_CHOICE;
	knowledge = kvw_exact_knowledge(ka->exact, set->items[i].id);
	if ((knowledge == KVW_KNOWS_ALL || knowledge == KVW_KNOWS_PART) && !is_exact(view, i))
		return KVW_KNOWS_NO_TOKENS;
	return knowledge;
}

static void decide(const struct kvaware *ka, const struct kvw_route_request *request,
	const struct kvw_candidates *set, struct kvw_choice choice, int64_t now_ns,
	const struct kvw_weighing *w, const struct view *view, struct kvw_decision *out)
{
	kvw_prefixaware_decide(request, set, choice, now_ns, w, out);
	out->knowledge = knowledge_of(ka, request, set, view, choice.pos);
	if (out->knowledge == KVW_KNOWS_ALL && !view->all)
		out->knowledge = KVW_KNOWS_OTHERS;
	if (view->blended && view->fragment_tokens[choice.pos] > 0) {
		out->fragment_tokens = view->fragment_tokens[choice.pos];
		out->prefill_ns -= (int64_t)(view->fragment_work[choice.pos] * w->x[choice.pos]);
		if (out->reason == KVW_REASON_LOAD)
			out->reason = KVW_OWN_REASON(kvaware, REASON_FRAGMENTS);
	}
	if (!is_exact(view, choice.pos))
		return;
	memcpy(out->hit_tokens, view->tokens[choice.pos], sizeof(out->hit_tokens));
	out->exact = true;
	if (out->reason == KVW_REASON_PREFIX)
		out->reason = KVW_REASON_KVAWARE;
}

/* Claims the prompt's blocks for the chosen worker. Which of several key spaces the worker uses
 * shows only in its hits. */
static void claim(struct kvaware *ka, const struct kvw_route_request *request,
	const struct view *view, const struct kvw_decision *decision, int64_t now_ns)
{
	size_t pos = decision->pos;
	enum kvw_reporter reporter =
		(view->word[pos] & WORD_ENGINE) != 0 ? KVW_REPORTER_ENGINE : KVW_REPORTER_LMCACHE;
	int64_t ns = reporter == KVW_REPORTER_ENGINE ? CLAIM_ENGINE_NS : CLAIM_LMCACHE_NS;

	ns += (int64_t)(CLAIM_FACTOR * (double)(decision->queue_ns + decision->prefill_ns));
	for (uint32_t c = 0; c < request->exact_count; c++) {
		if (request->exact[c].reporter != reporter)
			continue;
		if (view->chain[pos] == NO_CHAIN || view->chain[pos] == c)
			kvw_claims_make(kvw_exact_claims(ka->exact), decision->worker_id,
				&request->exact[c], view->held[pos], now_ns, ns);
	}
}

/* Drops the claims of a request that the worker did not serve. */
static void unclaim(struct kvaware *ka, const struct kvw_route_request *request,
	const struct kvw_decision *decision)
{
	for (uint32_t c = 0; c < request->exact_count; c++) {
		const struct kvw_exact_chain *chain = &request->exact[c];

		if (chain->block_tokens > 0)
			kvw_claims_drop(kvw_exact_claims(ka->exact), decision->worker_id, chain,
				sum_of(decision->hit_tokens) / chain->block_tokens);
	}
}

/* --- the strategy --- */

static enum kvw_err kvaware_pick(struct kvw_strategy *self, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct kvw_decision *out)
{
	struct kvaware *ka = (struct kvaware *)self;
	struct kvw_route_request exactly = measured(request);
	struct kvw_weighing w; /* both are filled only for candidates that exist */
	struct view view;
	struct kvw_choice choice;

	w.look = false;
	weigh(ka, &exactly, set, now_ns, &w, &view);
	if (w.usable == 0)
		return KVW_ENOWORKER;
	choice = kvw_prefixaware_choose(&ka->pa, &exactly, set, &w);
	kvw_prefixaware_teach(&ka->pa, &exactly, &set->items[choice.pos], now_ns, &w);
	decide(ka, &exactly, set, choice, now_ns, &w, &view, out);
	if (out->exact)
		claim(ka, &exactly, &view, out, now_ns);
	if (ka->fragments != NULL && exactly.teaches)
		teach_fragments(ka, &exactly, &set->items[choice.pos]);
	return KVW_OK;
}

static enum kvw_err kvaware_explain(struct kvw_strategy *self,
	const struct kvw_route_request *request, const struct kvw_candidates *set, int64_t now_ns,
	struct kvw_cost *costs, struct kvw_decision *out)
{
	struct kvaware *ka = (struct kvaware *)self;
	struct kvw_route_request exactly = measured(request);
	struct kvw_weighing w;
	struct view view;
	struct kvw_choice choice;

	w.look = true;
	weigh(ka, &exactly, set, now_ns, &w, &view);
	if (w.usable == 0)
		return KVW_ENOWORKER;
	choice = kvw_prefixaware_choose(&ka->pa, &exactly, set, &w);
	kvw_prefixaware_report(&ka->pa, set, now_ns, choice.pos, &w, costs);
	for (size_t i = 0; i < set->count; i++) {
		if (view.blended && view.fragment_tokens[i] > 0) {
			costs[i].fragment_tokens = view.fragment_tokens[i];
			costs[i].prefill_ns -= view.fragment_work[i] * w.x[i];
			costs[i].others_ns = kvw_weigh_others(&w, i, costs[i].prefill_ns);
		}
		costs[i].knowledge = knowledge_of(ka, &exactly, set, &view, i);
		if (!is_exact(&view, i))
			continue;
		memcpy(costs[i].hit_tokens, view.tokens[i], sizeof(costs[i].hit_tokens));
		costs[i].exact = true;
		costs[i].evict_ns = view.evict_ns[i];
	}
	decide(ka, &exactly, set, choice, now_ns, &w, &view, out);
	return KVW_OK;
}

static void kvaware_purge(struct kvw_strategy *self, uint32_t worker_id)
{
	struct kvaware *ka = (struct kvaware *)self;

	kvw_prefixaware_forget(&ka->pa, worker_id);
	kvw_exact_purge(ka->exact, worker_id);
	kvw_claims_forget(kvw_exact_claims(ka->exact), worker_id);
	if (ka->fragments != NULL)
		kvw_fragments_purge(ka->fragments, worker_id);
}

static void kvaware_done(struct kvw_strategy *self, const struct kvw_decision *decision,
	const struct kvw_outcome *outcome, int64_t now_ns)
{
	if (outcome->unserved != NULL && decision->exact)
		unclaim((struct kvaware *)self, outcome->unserved, decision);
	kvw_prefixaware_done(self, decision, outcome, now_ns);
}

static void kvaware_stats(struct kvw_strategy *self, struct kvw_strategy_stats *out)
{
	struct kvaware *ka = (struct kvaware *)self;

	kvw_prefixaware_stats(self, out);
	kvw_exact_stats(ka->exact, out);
	if (ka->fragments != NULL)
		kvw_fragments_stats(ka->fragments, &out->fragment_entries,
			&out->fragment_entries_limit, &out->fragment_bytes);
}

static struct kvw_exact *kvaware_exact(struct kvw_strategy *self)
{
	return ((struct kvaware *)self)->exact;
}

static const struct kvw_reason_text reasons[] = {
	[REASON_FRAGMENTS] = {"fragments",
		"it costs least, and was sent texts of the prompt that are not its beginning"},
	{NULL, NULL},
};

const struct kvw_strategy_ops kvw_kvaware_ops = {
	.name = "kvaware",
	.help = "as prefixaware, with hits by what workers themselves say they hold",
	.reasons = reasons,
	.prepare = KVW_PREPARE_TOKENS,
	.create = kvaware_create,
	.pick = kvaware_pick,
	.explain = kvaware_explain,
	.reconfigure = kvaware_reconfigure,
	.done = kvaware_done,
	.purge = kvaware_purge,
	.stats = kvaware_stats,
	.learned = kvw_prefixaware_learned,
	.keep = kvw_prefixaware_keep,
	.recall = kvw_prefixaware_recall,
	.recall_aside = kvw_prefixaware_recall_aside,
	.exact = kvaware_exact,
	.destroy = kvaware_destroy,
};
