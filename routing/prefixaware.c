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
#include "radix.h"
#include "strategies.h"

#define DEFAULT_BLOCK 16  /* vLLM's block where the worker does not tell */
#define MAX_CHAINS    256 /* of a list of prompts; the rest is not looked up */

struct prefixaware {
	struct kvw_strategy base;
	struct kvw_prefill_model model;
	struct kvw_radix *tree;
	uint64_t capacity_tokens;           /* of a worker that does not tell its own */
	_Alignas(64) _Atomic uint64_t turn; /* salt of choices without content */

	/* The generation of each worker's cache that the tree knows. */
	_Alignas(64) _Atomic uint32_t generations[KVW_MAX_WORKERS];
};

/* What one pick gathers. Places of the arrays are those of the candidates. */
struct weighing {
	struct kvw_radix_path path;     /* of the last chain walked */
	struct kvw_radix_reach reach;   /* of the last chain walked */
	double costs[KVW_MAX_WORKERS];  /* first Q_w, then cost(w), ns */
	double shares[KVW_MAX_WORKERS]; /* 1 + omega * n_w */
	double saved[KVW_MAX_WORKERS];  /* ns that hits save of the prefill, all chains */
	uint32_t hits[KVW_MAX_WORKERS]; /* tokens, all chains */
	double miss_ns;                 /* prefill without any hit, all chains */
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
static void note_generation(struct prefixaware *pa, const struct kvw_candidate *c)
{
	_Atomic uint32_t *generation = &pa->generations[c->id];
	uint32_t known = 0;

	assert(c->id < KVW_MAX_WORKERS);
	known = atomic_load_explicit(generation, memory_order_relaxed);
	while ((int32_t)(c->generation - known) > 0)
		if (atomic_compare_exchange_weak_explicit(generation, &known, c->generation,
			    memory_order_relaxed, memory_order_relaxed)) {
			kvw_radix_purge(pa->tree, c->id);
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
	return hit / block * block;
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

/* The loads of all candidates. Returns how many are usable. */
static size_t weigh_load(struct prefixaware *pa, const struct kvw_candidates *set, int64_t now_ns,
	struct weighing *w)
{
	double omega = pa->model.omega;
	size_t usable = 0;

	memset(w->saved, 0, set->count * sizeof(w->saved[0]));
	memset(w->hits, 0, set->count * sizeof(w->hits[0]));
	for (size_t i = 0; i < set->count; i++) {
		const struct kvw_candidate *c = &set->items[i];

		note_generation(pa, c);
		usable += c->usable;
		w->costs[i] = c->usable ? (double)kvw_load_queue_ns(c->load, now_ns) : KVW_NO_COST;
		w->shares[i] = 1 + omega * kvw_load_inflight(c->load);
	}
	return usable;
}

/* What holding a part of a chain is worth; most holders of a prompt hold the same part. */
struct worth {
	uint32_t reach; /* chunks */
	uint32_t block; /* of the engine; with reach the question, the rest is the answer */
	uint32_t hit;   /* tokens */
	double saved;   /* ns */
};

/* Adds what each candidate's hit in one chain, whose path was found, saves it. */
static void weigh_chain(struct prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, uint32_t begin, uint32_t end, struct weighing *w)
{
	const struct kvw_chunk *chunks = request->chunks + begin;
	uint32_t tokens = kvw_chain_tokens(request, begin, end);
	double miss_ns = kvw_prefill_ns(&pa->model, tokens, 0);
	struct worth worth = {0, 0, 0, 0};
	uint32_t furthest = 0;

	w->tokens += tokens;
	w->miss_ns += miss_ns;
	kvw_radix_reach(pa->tree, chunks, end - begin, &w->path, &w->reach);
	for (uint32_t r = 0; r < w->reach.count; r++) {
		uint32_t id = w->reach.workers[r];
		uint32_t reach = w->reach.chunks[id];
		size_t i = place_of(set, id);

		if (i == set->count)
			continue;
		if (reach != worth.reach || set->items[i].block_size != worth.block) {
			worth.reach = reach;
			worth.block = set->items[i].block_size;
			worth.hit = usable_hit(request, begin, reach, tokens, worth.block);
			worth.saved = miss_ns - kvw_prefill_ns(&pa->model, tokens, worth.hit);
		}
		w->hits[i] += worth.hit;
		w->saved[i] += worth.saved;
		if (reach > furthest && set->items[i].usable)
			furthest = reach;
	}
	if (end > begin)
		w->salt ^= chunks[furthest < end - begin ? furthest : furthest - 1].hash;
}

/* Chains beyond those that are looked up count as misses. */
static void weigh_rest(struct prefixaware *pa, const struct kvw_route_request *request,
	uint32_t begin, struct weighing *w)
{
	for (uint32_t c = MAX_CHAINS; c < request->chain_count; c++) {
		uint32_t tokens = kvw_chain_tokens(request, begin, request->chain_ends[c]);

		w->tokens += tokens;
		w->miss_ns += kvw_prefill_ns(&pa->model, tokens, 0);
		begin = request->chain_ends[c];
	}
}

/* Puts it together: cost(w) = Q_w + p_w (1 + omega n_w). */
static size_t choose(const struct kvw_candidates *set, struct weighing *w)
{
	for (size_t i = 0; i < set->count; i++)
		w->costs[i] += (w->miss_ns - w->saved[i]) * w->shares[i];
	return kvw_choose_lowest(set, w->costs, w->salt);
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

/* A prompt that is understood. Returns how many candidates are usable; *out is set if any is. */
static size_t pick_by_cost(struct prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct kvw_decision *out)
{
	struct weighing w; /* filled as far as there are candidates and steps */
	uint32_t begin = 0;
	size_t usable = 0;
	size_t pos = 0;

	w.salt = request->seed;
	w.tokens = 0;
	w.miss_ns = 0;
	for (uint32_t c = 0; c < request->chain_count && c < MAX_CHAINS; c++) {
		uint32_t end = request->chain_ends[c];

		kvw_radix_find(pa->tree, request->chunks + begin, end - begin, &w.path);
		if (c == 0)
			usable = weigh_load(pa, set, now_ns, &w); /* while the nodes arrive */
		if (usable == 0)
			return 0;
		weigh_chain(pa, request, set, begin, end, &w);
		begin = end;
	}
	weigh_rest(pa, request, begin, &w);
	pos = choose(set, &w);
	teach(pa, request, &set->items[pos], now_ns, &w);
	*out = (struct kvw_decision){
		.pos = pos,
		.reason = w.hits[pos] > 0 ? KVW_REASON_PREFIX : KVW_REASON_LOAD,
		.prompt_tokens = w.tokens,
		.hit_tokens[KVW_TIER_DEVICE] = w.hits[pos],
		.prefill_ns = (int64_t)(w.miss_ns - w.saved[pos]),
		.worker_id = set->items[pos].id,
	};
	return usable;
}

/* A prompt of which nothing is known, or one that leaves nothing in the cache. Returns and sets the
 * same. */
static size_t pick_by_load(struct prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct kvw_decision *out)
{
	size_t usable = kvw_usable_count(set);
	uint64_t salt = 0;
	size_t pos = 0;

	if (usable == 0)
		return 0;
	salt = atomic_fetch_add_explicit(&pa->turn, 1, memory_order_relaxed);
	pos = kvw_choose_by_load(&pa->model, set, now_ns, salt);
	*out = (struct kvw_decision){
		.pos = pos,
		.reason = request->content_known ? KVW_REASON_LOAD : KVW_REASON_NO_CONTENT,
		.prompt_tokens = kvw_request_tokens(request),
		.prefill_ns = kvw_request_prefill_ns(&pa->model, request),
		.worker_id = set->items[pos].id,
	};
	return usable;
}

static enum kvw_err prefixaware_pick(struct kvw_strategy *self,
	const struct kvw_route_request *request, const struct kvw_candidates *set, int64_t now_ns,
	struct kvw_decision *out)
{
	struct prefixaware *pa = (struct prefixaware *)self;
	size_t usable = 0;

	assert(set->count <= KVW_MAX_WORKERS);
	if (request->content_known && request->teaches && request->chunk_count > 0)
		usable = pick_by_cost(pa, request, set, now_ns, out);
	else
		usable = pick_by_load(pa, request, set, now_ns, out);
	if (usable == 1)
		out->reason = KVW_REASON_ONLY;
	return usable > 0 ? KVW_OK : KVW_ENOWORKER;
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
