/*
 * weigh.c - computes each worker's cost for one prompt.
 *
 * Walks the tree, and while the nodes arrive computes each worker's cost without any hit: one loop
 * over all workers, without branches. Then subtracts the savings of hits for the few workers that
 * the path reaches. Unless the caller only looks, purges workers that have lost their cache.
 */
#include <assert.h>
#include <string.h>

#include "routing/prefixaware.h"

#define DEFAULT_BLOCK 16  /* vLLM's block size, assumed if the worker does not report its own */
#define MAX_CHAINS    256 /* limit of prompts of a list that are looked up */

/* Bytes of the board that are prefetched before the walk: about as many cache misses as a core can
 * have outstanding. */
#define PREFETCH_BYTES 2048

void kvw_prefixaware_forget(struct kvw_prefixaware *pa, uint32_t worker)
{
	/* Ordered after the store of the generation, since prefixaware_keep.c purges a tree that
	 * comes into use meanwhile. */
	kvw_radix_purge(atomic_load(&pa->known->tree), worker);
	kvw_rates_restart(&pa->known->rates, worker);
	kvw_capacity_share_restart(&pa->known->capacity_share, worker);
}

/* Returns whether a candidate's cache has a newer generation than the one that the tree knows. */
static bool is_newer(const struct kvw_prefixaware *pa, const struct kvw_candidate *c)
{
	uint32_t known = atomic_load_explicit(&pa->known->generations[c->id], memory_order_relaxed);

	return (int32_t)(c->generation - known) > 0;
}

/* Purges a candidate from the tree if its generation is newer than the tree's, since it has lost
 * its cache. A loop with an older snapshot of the fleet must not purge it again. */
static void note_generation(struct kvw_prefixaware *pa, const struct kvw_candidate *c)
{
	_Atomic uint32_t *generation = &pa->known->generations[c->id];
	uint32_t known = atomic_load_explicit(generation, memory_order_relaxed);

	while ((int32_t)(c->generation - known) > 0)
		if (atomic_compare_exchange_weak_explicit(generation, &known, c->generation,
			    memory_order_seq_cst, memory_order_relaxed)) {
			kvw_prefixaware_forget(pa, c->id);
			break;
		}
}

/* Returns how many tokens of a chain the engine will reuse if it holds the chain's first `reach`
 * chunks. */
static uint32_t usable_hit(const struct kvw_route_request *request, uint32_t begin, uint32_t reach,
	uint32_t tokens, uint32_t block)
{
	uint32_t hit = kvw_chain_tokens(request, begin, begin + reach);

	if (hit >= tokens)
		hit = tokens > 0 ? tokens - 1 : 0;
	/* The block size is nearly always a power of two, and then no division is needed. */
	return (block & (block - 1)) == 0 ? hit & ~(block - 1) : hit / block * block;
}

/* Returns the index of a worker among the candidates; set->count: it is not among them. Ids are
 * indices in a fleet that never lost a worker and serves one model. */
static size_t place_of(const struct kvw_candidates *set, uint32_t id)
{
	size_t place = 0;

	if (id < set->count && set->items[id].id == id)
		return id;
	place = kvw_place_from(set, id);
	return place < set->count && set->items[place].id == id ? place : set->count;
}

/* Returns whether ids are indices and loads lie on a board, as in a fleet that never lost a worker
 * and serves one model. */
static bool is_dense(const struct kvw_candidates *set)
{
	return set->board != NULL && set->count > 0 &&
	       set->items[set->count - 1].id == set->count - 1;
}

/* Prefetches the board of a dense set: other loops have written to some of its lines. */
static void prefetch_board(const struct kvw_candidates *set)
{
	const char *board = (const char *)set->board;
	size_t bytes = set->count * sizeof(set->board->workers[0]);
	const char *end = board + (bytes < PREFETCH_BYTES ? bytes : PREFETCH_BYTES);

	for (; board < end; board += 64)
		__builtin_prefetch(board);
}

static struct kvw_cost_terms terms_of(
	const struct kvw_prefixaware *pa, int64_t now_ns, const struct kvw_weighing *w)
{
	return (struct kvw_cost_terms){now_ns,
		atomic_load_explicit(&pa->context_ns, memory_order_relaxed), w->miss, w->tokens,
		w->omega};
}

/* Reads the loads of a dense set. Returns the sum of requests in flight. */
static uint64_t read_board(const struct kvw_prefixaware *pa, const struct kvw_candidates *set,
	int64_t now_ns, struct kvw_weighing *w)
{
	struct kvw_cost_terms terms = terms_of(pa, now_ns, w);

	return pa->kernel->loads(set->board, pa->known->rates.ns_per_token, set->count, &terms,
		w->costs, w->x, w->inflight, &w->lowest);
}

/* Fills in-flight counts and costs of w worker by worker, for a set that is not dense. Returns the
 * sum of the requests in flight. */
static uint64_t read_loads(const struct kvw_prefixaware *pa, const struct kvw_candidates *set,
	int64_t now_ns, struct kvw_weighing *w)
{
	double context_ns = atomic_load_explicit(&pa->context_ns, memory_order_relaxed);
	uint64_t inflight = 0;

	w->lowest = KVW_NO_COST;
	for (size_t i = 0; i < set->count; i++) {
		const struct kvw_candidate *c = &set->items[i];
		uint32_t n = kvw_load_inflight(c->load);

		assert(c->id < KVW_MAX_WORKERS);
		inflight += n;
		w->inflight[i] = (int32_t)n;
		w->x[i] = kvw_rates_x(&pa->known->rates, c->id);
		w->costs[i] = kvw_load_delay_ns(c->load, w->tokens, now_ns) +
			      context_ns * kvw_load_context(c->load) +
			      w->miss * kvw_weigh_each(w, i);
		w->lowest = w->costs[i] < w->lowest ? w->costs[i] : w->lowest;
	}
	return inflight;
}

/* Encodes a plain set: its version, and the block size of all its candidates (a power of two) or 0
 * if they differ. */
static uint64_t plain_word(uint64_t version, uint32_t block_size)
{
	return version << 6 | (block_size == 0 ? 0 : (uint64_t)__builtin_ctz(block_size) + 1);
}

/* Returns whether this set was found plain when it was last read: every candidate usable, of a
 * known generation and of a full share. Then sets *block_size. */
static bool is_plain(
	struct kvw_prefixaware *pa, const struct kvw_candidates *set, uint32_t *block_size)
{
	uint64_t word = atomic_load_explicit(
		&pa->plain[set->version % KVW_PLAIN_SETS], memory_order_relaxed);

	*block_size = (word & 63) == 0 ? 0 : 1u << ((word & 63) - 1);
	return set->version != 0 && word >> 6 == set->version;
}

static uint32_t block_size_of(const struct kvw_candidate *c)
{
	return c->block_size == 0 ? DEFAULT_BLOCK : c->block_size;
}

/* Reads all candidates. Returns the number of usable ones; handles those that have lost their
 * caches. Sets w->shares, and w->block_size if all are usable and none has lost its cache. */
static size_t read_items(
	struct kvw_prefixaware *pa, const struct kvw_candidates *set, struct kvw_weighing *w)
{
	uint32_t first = set->count > 0 ? block_size_of(&set->items[0]) : 0;
	bool alike = (first & (first - 1)) == 0;
	size_t usable = 0;
	bool newer = false;
	bool limited = false;

	w->shares = kvw_share_sum(set, &limited);
	if (!limited)
		w->shares = 0;
	for (size_t i = 0; i < set->count; i++) {
		newer |= is_newer(pa, &set->items[i]);
		usable += set->items[i].usable;
		alike &= block_size_of(&set->items[i]) == first;
	}
	for (size_t i = 0; i < set->count && newer && !w->look; i++)
		note_generation(pa, &set->items[i]);
	w->block_size = 0;
	if (usable == set->count && !newer) {
		w->block_size = alike ? first : 0;
		if (set->version != 0 && !limited)
			atomic_store_explicit(&pa->plain[set->version % KVW_PLAIN_SETS],
				plain_word(set->version, w->block_size), memory_order_relaxed);
	}
	return usable;
}

/* Computes the costs of all candidates without any hit. */
static void weigh_load(struct kvw_prefixaware *pa, const struct kvw_candidates *set, int64_t now_ns,
	struct kvw_weighing *w)
{
	const size_t count = set->count;
	bool dense = is_dense(set);
	size_t usable = count;
	uint64_t inflight = 0;

	w->shares = 0;
	if (!is_plain(pa, set, &w->block_size))
		usable = read_items(pa, set, w);
	inflight = dense ? read_board(pa, set, now_ns, w) : read_loads(pa, set, now_ns, w);
	if (!dense)
		w->block_size = 0;
	memset(w->hits, 0, count * sizeof(w->hits[0]));
	for (size_t i = 0; i < count && usable < count; i++) {
		if (set->items[i].usable)
			continue;
		inflight -= (uint32_t)w->inflight[i];
		w->costs[i] = KVW_NO_COST;
	}
	if (usable < count)
		w->lowest = kvw_lowest(w->costs, count);
	w->unhit = w->lowest;
	w->usable = usable;
	w->mean = usable > 0 ? (double)inflight / (double)usable : 0;
}

/* Adds a hit to a candidate's reused tokens. */
static void take_hit(struct kvw_weighing *w, size_t i, uint32_t hit, double saved)
{
	w->saved[i] = kvw_weigh_saved(w, i) + saved;
	w->hits[i] += hit;
	w->costs[i] -= saved * kvw_weigh_each(w, i);
	w->lowest = w->costs[i] < w->lowest ? w->costs[i] : w->lowest;
}

/* Takes the hits in one chain of candidates that are all usable, have one block size, and whose ids
 * are their places. Returns the most chunks that any of them holds. */
static uint32_t take_alike(const struct kvw_prefixaware *pa, const struct kvw_chunk *chunks,
	uint32_t tokens, float tokens_per_unit, struct kvw_weighing *w)
{
	struct kvw_reached reached = {
		.chunks = chunks,
		.workers = w->reach.workers,
		.held = w->reach.chunks,
		.count = w->reach.count,
		.tokens_per_unit = tokens_per_unit,
		.pairs = w->pairs,
		.omega = w->omega,
		.most = tokens > 0 ? tokens - 1 : 0,
		.block_size = w->block_size,
	};
	struct kvw_weights weights = {w->costs, w->hits, w->saved, w->x, w->inflight};
	double lowest = pa->kernel->take(&reached, &weights, w->reached);
	uint32_t furthest = 0;

	w->lowest = lowest < w->lowest ? lowest : w->lowest;
	for (uint32_t r = 0; r < w->reach.count; r++)
		furthest = w->reach.chunks[r] > furthest ? w->reach.chunks[r] : furthest;
	return furthest;
}

/* Does the same for candidates that may differ. */
static uint32_t take_each(const struct kvw_prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, uint32_t begin, uint32_t tokens, struct kvw_weighing *w)
{
	uint32_t furthest = 0;

	for (uint32_t r = 0; r < w->reach.count; r++) {
		uint32_t held = w->reach.chunks[r];
		size_t i = place_of(set, w->reach.workers[r]);
		uint32_t hit = 0;

		if (i == set->count || (w->look && is_newer(pa, &set->items[i])))
			continue; /* not a candidate, or one that a pick would first purge */
		hit = usable_hit(request, begin, held, tokens, block_size_of(&set->items[i]));
		take_hit(w, i, hit, kvw_rates_work(w->pairs, hit, 0));
		if (held > furthest && set->items[i].usable)
			furthest = held;
	}
	return furthest;
}

/* Subtracts the savings of each candidate's hit in one chain, whose path was found. */
static void weigh_chain(struct kvw_prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, uint32_t begin, uint32_t end, struct kvw_weighing *w)
{
	const struct kvw_chunk *chunks = request->chunks + begin;
	uint32_t tokens = kvw_chain_tokens(request, begin, end);
	uint32_t furthest = 0;

	kvw_radix_reach(w->tree, chunks, end - begin, &w->path, &w->reach);
	furthest = w->block_size > 0 ? take_alike(pa, chunks, tokens, request->tokens_per_unit, w)
				     : take_each(pa, request, set, begin, tokens, w);
	if (end > begin)
		w->salt ^= chunks[furthest < end - begin ? furthest : furthest - 1].hash;
}

/* Computes the tokens of all chains, and their work without any hit. */
static void measure(const struct kvw_route_request *request, struct kvw_weighing *w)
{
	uint32_t begin = 0;

	w->tokens = 0;
	w->miss = 0;
	for (uint32_t c = 0; c < request->chain_count; c++) {
		uint32_t tokens = kvw_chain_tokens(request, begin, request->chain_ends[c]);

		if (request->chain_count == 1 && request->exact_tokens > 0)
			tokens = request->exact_tokens;
		w->tokens += tokens;
		w->miss += kvw_rates_work(w->pairs, tokens, 0);
		begin = request->chain_ends[c];
	}
}

/* Weighs a known prompt. Chains beyond MAX_CHAINS count as misses. */
static void weigh_prompt(struct kvw_prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct kvw_weighing *w)
{
	uint32_t begin = 0;

	w->salt = request->seed;
	w->omega = (float)atomic_load_explicit(&pa->omega, memory_order_relaxed);
	w->reach.limit = set->count > 0 ? set->items[set->count - 1].id + 1 : 0;
	w->chains = request->chain_count < MAX_CHAINS ? request->chain_count : MAX_CHAINS;
	w->pairs = atomic_load_explicit(&pa->known->rates.pairs, memory_order_relaxed);
	if (is_dense(set))
		prefetch_board(set);
	for (uint32_t c = 0; c < w->chains; c++) {
		uint32_t end = request->chain_ends[c];

		kvw_radix_find(w->tree, request->chunks + begin, end - begin, &w->path);
		if (c == 0) { /* while nodes arrive */
			measure(request, w);
			weigh_load(pa, set, now_ns, w);
		}
		weigh_chain(pa, request, set, begin, end, w);
		begin = end;
	}
}

/* Weighs a prompt that is unknown, or that leaves no blocks in the cache. */
static void weigh_blind(struct kvw_prefixaware *pa, const struct kvw_candidates *set,
	int64_t now_ns, struct kvw_weighing *w)
{
	double omega = atomic_load_explicit(&pa->omega, memory_order_relaxed);

	w->salt = atomic_load_explicit(&pa->turn, memory_order_relaxed);
	if (!w->look)
		w->salt = atomic_fetch_add_explicit(&pa->turn, 1, memory_order_relaxed);
	w->tokens = 0;
	w->chains = 0;
	w->omega = (float)(omega > KVW_MIN_OMEGA ? omega : KVW_MIN_OMEGA);
	w->pairs = atomic_load_explicit(&pa->known->rates.pairs, memory_order_relaxed);
	w->miss = kvw_rates_work(w->pairs, KVW_UNKNOWN_TOKENS, 0);
	weigh_load(pa, set, now_ns, w);
}

static bool is_understood(const struct kvw_route_request *request)
{
	return request->content_known && request->teaches && request->chunk_count > 0 &&
	       request->chain_count > 0;
}

void kvw_weigh_hits(struct kvw_prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct kvw_weighing *w)
{
	assert(set->count <= KVW_MAX_WORKERS);
	w->tree = kvw_prefixaware_tree(pa);
	if (is_understood(request))
		weigh_prompt(pa, request, set, now_ns, w);
	else
		weigh_blind(pa, set, now_ns, w);
}

/* --- lockstep --- */

/* The ranks of one server: requests in flight on all ranks, and the longest and second longest time
 * until a rank could begin the prompt. */
struct step {
	uint32_t ranks;
	int64_t inflight;
	double longest, second;
};

/*
 * Ranks in lockstep end each step together. A prefill that fits into the time of a busier rank is
 * done in steps that are as long without it and delays no answer of the other ranks; what goes
 * beyond that makes the steps of all ranks longer, and costs, in addition to omega * p_w * n_w,
 *
 *	omega * min(p_w, max(0, Q_w + p_w - Q_max of the others)) * n of the other ranks
 *
 * The worker's own term stays in full: without it a prefill on a less busy rank would count as
 * free, and prompts would go there that another rank has cached. One pass over the candidates for
 * each of the two sums.
 */
void kvw_weigh_lockstep(const struct kvw_candidates *set, struct kvw_weighing *w)
{
	struct step steps[KVW_MAX_WORKERS]; /* by server; filled only for servers in the set */
	double begin[KVW_MAX_WORKERS], prefill[KVW_MAX_WORKERS];

	for (size_t i = 0; i < set->count; i++)
		steps[set->items[i].server] = (struct step){.ranks = 0};
	for (size_t i = 0; i < set->count; i++) {
		struct step *step = &steps[set->items[i].server];

		step->ranks++;
		step->inflight += w->inflight[i];
		prefill[i] = (w->miss - kvw_weigh_saved(w, i)) * w->x[i];
		begin[i] = w->costs[i] -
			   (w->miss - kvw_weigh_saved(w, i)) * kvw_weigh_each(w, i);
		if (!set->items[i].usable)
			continue;
		if (begin[i] >= step->longest) {
			step->second = step->longest;
			step->longest = begin[i];
		} else if (begin[i] > step->second) {
			step->second = begin[i];
		}
	}
	for (size_t i = 0; i < set->count; i++) {
		const struct step *step = &steps[set->items[i].server];
		double others = begin[i] < step->longest ? step->longest : step->second;
		double beyond = begin[i] + prefill[i] - others;

		w->lockstep_ns[i] = 0;
		if (step->ranks < 2 || !set->items[i].usable)
			continue;
		beyond = beyond < 0 ? 0 : beyond > prefill[i] ? prefill[i] : beyond;
		w->lockstep_ns[i] =
			(double)w->omega * beyond * (double)(step->inflight - w->inflight[i]);
		w->costs[i] += w->lockstep_ns[i];
	}
	w->lowest = kvw_lowest(w->costs, set->count);
}
