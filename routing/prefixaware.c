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
 * depends on the number of workers is kept in arrays on the stack (16 KiB at 1,024).
 */
#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "choice.h"
#include "radix.h"
#include "strategies.h"

#define DEFAULT_BLOCK 16  /* vLLM's block where the worker does not tell */
#define MAX_CHAINS    256 /* of a list of prompts; the rest goes by load */

struct prefixaware {
	struct kvw_strategy base;
	struct kvw_prefill_model model;
	struct kvw_radix *tree;
	uint64_t capacity_tokens;           /* of a worker that does not tell its own */
	_Alignas(64) _Atomic uint64_t turn; /* salt of choices without content */

	/* The generation of each worker's cache that the tree knows. */
	_Alignas(64) _Atomic uint32_t generations[KVW_MAX_WORKERS];
};

/* What one pick gathers. Places of the arrays are those of the candidates, but for reach. */
struct weighing {
	struct kvw_radix_path path;      /* of the last chain walked */
	uint32_t reach[KVW_MAX_WORKERS]; /* by worker id: chunks of the last chain walked */
	double prefill[KVW_MAX_WORKERS]; /* p_w, ns, all chains */
	double costs[KVW_MAX_WORKERS];
	uint32_t hits[KVW_MAX_WORKERS]; /* tokens, all chains */
	uint64_t salt;                  /* first chunk that nobody holds */
	uint32_t tokens;                /* all chains */
};

static enum kvw_err prefixaware_create(
	const struct kvw_strategy_options *options, struct kvw_strategy **out)
{
	struct prefixaware *pa = aligned_alloc(64, sizeof(*pa));
	struct kvw_radix_options tree = {.bytes = options->tree_bytes, .seed = options->seed};

	if (pa == NULL)
		return KVW_ENOMEM;
	memset(pa, 0, sizeof(*pa));
	pa->base.ops = &kvw_prefixaware_ops;
	pa->capacity_tokens = options->capacity_tokens > 0 ? options->capacity_tokens : 1;
	kvw_prefill_model_init(&pa->model, options);
	if (kvw_radix_create(&tree, &pa->tree) != KVW_OK) {
		free(pa);
		return KVW_ENOMEM;
	}
	*out = &pa->base;
	return KVW_OK;
}

/* A candidate of a newer generation than the tree knows has lost its cache. A loop with an older
 * snapshot of the fleet must not purge it again. */
static void note_generations(struct prefixaware *pa, const struct kvw_candidates *set)
{
	for (size_t i = 0; i < set->count; i++) {
		const struct kvw_candidate *c = &set->items[i];
		uint32_t known = 0;

		assert(c->id < KVW_MAX_WORKERS);
		known = atomic_load_explicit(&pa->generations[c->id], memory_order_relaxed);
		while ((int32_t)(c->generation - known) > 0)
			if (atomic_compare_exchange_weak_explicit(&pa->generations[c->id], &known,
				    c->generation, memory_order_relaxed, memory_order_relaxed)) {
				kvw_radix_purge(pa->tree, c->id);
				break;
			}
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
	return hit / block * block;
}

static uint32_t max_id(const struct kvw_candidates *set)
{
	return set->count == 0 ? 0 : set->items[set->count - 1].id; /* ascending */
}

/* Adds one chain's hits and prefill to every usable candidate. */
static void weigh_chain(struct prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, uint32_t begin, uint32_t end, struct weighing *w)
{
	const struct kvw_chunk *chunks = request->chunks + begin;
	uint32_t tokens = kvw_chain_tokens(request, begin, end);
	uint32_t furthest = 0;
	double miss_ns = kvw_prefill_ns(&pa->model, tokens, 0);

	w->tokens += tokens;
	kvw_radix_find(pa->tree, chunks, end - begin, &w->path);
	memset(w->reach, 0, (max_id(set) + 1) * sizeof(w->reach[0]));
	kvw_radix_reach(pa->tree, &w->path, w->reach);
	for (size_t i = 0; i < set->count; i++) {
		const struct kvw_candidate *c = &set->items[i];
		uint32_t reach = w->reach[c->id];
		uint32_t hit = 0;

		if (reach == 0 || !c->usable) {
			w->prefill[i] += miss_ns;
			continue;
		}
		hit = usable_hit(request, begin, reach, tokens, c->block_size);
		w->hits[i] += hit;
		w->prefill[i] += kvw_prefill_ns(&pa->model, tokens, hit);
		if (reach > furthest)
			furthest = reach;
	}
	if (end > begin)
		w->salt ^= chunks[furthest < end - begin ? furthest : furthest - 1].hash;
}

/* cost(w) of every usable candidate. */
static void weigh_load(struct prefixaware *pa, const struct kvw_candidates *set, int64_t now_ns,
	struct weighing *w)
{
	for (size_t i = 0; i < set->count; i++) {
		struct kvw_load *load = set->items[i].load;

		if (set->items[i].usable)
			w->costs[i] = (double)kvw_load_queue_ns(load, now_ns) + w->prefill[i] +
				      pa->model.omega * w->prefill[i] * kvw_load_inflight(load);
	}
}

/* The chosen worker will hold all chains. */
static void teach(struct prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidate *chosen, int64_t now_ns, struct weighing *w)
{
	struct kvw_radix_use use = {
		.worker = chosen->id,
		.capacity_tokens =
			chosen->capacity_tokens > 0 ? chosen->capacity_tokens : pa->capacity_tokens,
		.tokens_per_unit = request->tokens_per_unit,
		.now_ns = now_ns,
	};
	uint32_t begin = 0;

	for (uint32_t c = 0; c < request->chain_count && c < MAX_CHAINS; c++) {
		uint32_t end = request->chain_ends[c];

		if (request->chain_count > 1)
			kvw_radix_find(pa->tree, request->chunks + begin, end - begin, &w->path);
		kvw_radix_insert(pa->tree, request->chunks + begin, end - begin, &use, &w->path);
		begin = end;
	}
}

/* A prompt that is understood. At least one candidate is usable. */
static void pick_by_cost(struct prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct kvw_decision *out)
{
	struct weighing w; /* filled as far as there are candidates and steps */
	uint32_t begin = 0;
	size_t pos = 0;

	memset(w.prefill, 0, set->count * sizeof(w.prefill[0]));
	memset(w.hits, 0, set->count * sizeof(w.hits[0]));
	w.salt = request->seed;
	w.tokens = 0;
	for (uint32_t c = 0; c < request->chain_count && c < MAX_CHAINS; c++) {
		weigh_chain(pa, request, set, begin, request->chain_ends[c], &w);
		begin = request->chain_ends[c];
	}
	weigh_load(pa, set, now_ns, &w);
	pos = kvw_choose_lowest(set, w.costs, w.salt);
	teach(pa, request, &set->items[pos], now_ns, &w);
	*out = (struct kvw_decision){
		.pos = pos,
		.reason = w.hits[pos] > 0 ? KVW_REASON_PREFIX : KVW_REASON_LOAD,
		.prompt_tokens = w.tokens,
		.hit_tokens[KVW_TIER_DEVICE] = w.hits[pos],
		.prefill_ns = (int64_t)w.prefill[pos],
		.worker_id = set->items[pos].id,
	};
}

/* A prompt of which nothing is known, or one that leaves nothing in the cache. */
static void pick_by_load(struct prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct kvw_decision *out)
{
	uint64_t salt = atomic_fetch_add_explicit(&pa->turn, 1, memory_order_relaxed);
	size_t pos = kvw_choose_by_load(&pa->model, set, now_ns, salt);

	*out = (struct kvw_decision){
		.pos = pos,
		.reason = request->content_known ? KVW_REASON_LOAD : KVW_REASON_NO_CONTENT,
		.prompt_tokens = kvw_request_tokens(request),
		.prefill_ns = kvw_request_prefill_ns(&pa->model, request),
		.worker_id = set->items[pos].id,
	};
}

static enum kvw_err prefixaware_pick(struct kvw_strategy *self,
	const struct kvw_route_request *request, const struct kvw_candidates *set, int64_t now_ns,
	struct kvw_decision *out)
{
	struct prefixaware *pa = (struct prefixaware *)self;
	size_t usable = kvw_usable_count(set, NULL);

	if (usable == 0)
		return KVW_ENOWORKER;
	assert(set->count <= KVW_MAX_WORKERS);
	note_generations(pa, set);
	if (request->content_known && request->teaches && request->chunk_count > 0)
		pick_by_cost(pa, request, set, now_ns, out);
	else
		pick_by_load(pa, request, set, now_ns, out);
	if (usable == 1)
		out->reason = KVW_REASON_ONLY;
	return KVW_OK;
}

static void prefixaware_purge(struct kvw_strategy *self, uint32_t worker_id)
{
	struct prefixaware *pa = (struct prefixaware *)self;

	kvw_radix_purge(pa->tree, worker_id);
}

static void prefixaware_stats(struct kvw_strategy *self, struct kvw_strategy_stats *out)
{
	struct prefixaware *pa = (struct prefixaware *)self;

	*out = (struct kvw_strategy_stats){0};
	kvw_radix_stats(pa->tree, out);
}

static void prefixaware_destroy(struct kvw_strategy *self)
{
	struct prefixaware *pa = (struct prefixaware *)self;

	if (pa == NULL)
		return;
	kvw_radix_destroy(pa->tree);
	free(pa);
}

const struct kvw_strategy_ops kvw_prefixaware_ops = {
	.name = "prefixaware",
	.help = "where the prompt's prefix is cached, unless waiting there costs more",
	.wants_content = true,
	.create = prefixaware_create,
	.pick = prefixaware_pick,
	.purge = prefixaware_purge,
	.stats = prefixaware_stats,
	.destroy = prefixaware_destroy,
};
