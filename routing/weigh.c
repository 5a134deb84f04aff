/*
 * weigh.c - what each worker would cost for one prompt, before anybody is chosen.
 *
 * Walks the tree, reads the loads while the nodes arrive, adds up. What depends on the number of
 * workers is kept in arrays that are read from one end to the other, and the last sum is one loop
 * without branches. Unless the caller only looks, a worker that has lost its cache is purged here.
 */
#include <assert.h>
#include <string.h>

#include "prefixaware.h"

#define DEFAULT_BLOCK 16  /* vLLM's block where the worker does not tell */
#define MAX_CHAINS    256 /* of a list of prompts; the rest is not looked up */

/* Of the board that is asked for before the walk: what a core waits for at once, about. */
#define PREFETCH_BYTES 2048

void kvw_prefixaware_forget(struct kvw_prefixaware *pa, uint32_t worker)
{
	kvw_radix_purge(pa->tree, worker);
	kvw_rates_restart(&pa->rates, worker);
	kvw_truth_restart(&pa->truth, worker);
}

/* Is a candidate's cache newer than what the tree knows? */
static bool is_newer(const struct kvw_prefixaware *pa, const struct kvw_candidate *c)
{
	uint32_t known = atomic_load_explicit(&pa->generations[c->id], memory_order_relaxed);

	return (int32_t)(c->generation - known) > 0;
}

/* A candidate of a newer generation than the tree knows has lost its cache. A loop with an older
 * snapshot of the fleet must not purge it again. */
static void note_generation(struct kvw_prefixaware *pa, const struct kvw_candidate *c)
{
	_Atomic uint32_t *generation = &pa->generations[c->id];
	uint32_t known = atomic_load_explicit(generation, memory_order_relaxed);

	while ((int32_t)(c->generation - known) > 0)
		if (atomic_compare_exchange_weak_explicit(generation, &known, c->generation,
			    memory_order_relaxed, memory_order_relaxed)) {
			kvw_prefixaware_forget(pa, c->id);
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

/* Places are ids, and loads lie on a board: a fleet that never lost a worker and serves one model. */
static bool is_dense(const struct kvw_candidates *set)
{
	return set->board != NULL && set->count > 0 &&
	       set->items[set->count - 1].id == set->count - 1;
}

/* Asks for the board of a dense set: other loops have written to some of its lines. */
static void prefetch_board(const struct kvw_candidates *set)
{
	const char *board = (const char *)set->board;
	size_t bytes = set->count * sizeof(set->board->workers[0]);

	for (size_t at = 0; at < bytes && at < PREFETCH_BYTES; at += 64)
		__builtin_prefetch(board + at);
}

/* Loads of a dense set. Returns the requests in flight. */
static uint64_t read_board(const struct kvw_prefixaware *pa, const struct kvw_candidates *set,
	int64_t now_ns, struct kvw_weighing *w)
{
	return pa->kernel->loads(set->board, pa->rates.ns_per_token, set->count, now_ns,
		pa->context_ns, w->costs, w->x, w->inflight);
}

/* Loads of any set. Returns the requests in flight. */
static uint64_t read_loads(const struct kvw_prefixaware *pa, const struct kvw_candidates *set,
	int64_t now_ns, struct kvw_weighing *w)
{
	uint64_t inflight = 0;

	for (size_t i = 0; i < set->count; i++) {
		const struct kvw_candidate *c = &set->items[i];
		uint32_t n = kvw_load_inflight(c->load);

		assert(c->id < KVW_MAX_WORKERS);
		inflight += n;
		w->costs[i] = (double)kvw_load_queue_ns(c->load, now_ns) +
			      pa->context_ns * kvw_load_context(c->load);
		w->inflight[i] = (int32_t)n;
		w->x[i] = kvw_rates_x(&pa->rates, c->id);
	}
	return inflight;
}

/* Whether every candidate was found usable and of a known generation when this set was read last. */
static bool is_plain(struct kvw_prefixaware *pa, const struct kvw_candidates *set)
{
	return set->version != 0 && atomic_load_explicit(&pa->plain[set->version % KVW_PLAIN_SETS],
					    memory_order_relaxed) == set->version;
}

/* Reads all candidates. Returns how many are usable; notes those that have lost their caches. */
static size_t read_items(struct kvw_prefixaware *pa, const struct kvw_candidates *set, bool look)
{
	size_t usable = 0;
	bool newer = false;

	for (size_t i = 0; i < set->count; i++) {
		newer |= is_newer(pa, &set->items[i]);
		usable += set->items[i].usable;
	}
	for (size_t i = 0; i < set->count && newer && !look; i++)
		note_generation(pa, &set->items[i]);
	if (usable == set->count && !newer && set->version != 0)
		atomic_store_explicit(&pa->plain[set->version % KVW_PLAIN_SETS], set->version,
			memory_order_relaxed);
	return usable;
}

/* The loads of all candidates. */
static void weigh_load(struct kvw_prefixaware *pa, const struct kvw_candidates *set, int64_t now_ns,
	struct kvw_weighing *w)
{
	const size_t count = set->count;
	size_t usable = is_plain(pa, set) ? count : read_items(pa, set, w->look);
	uint64_t inflight =
		is_dense(set) ? read_board(pa, set, now_ns, w) : read_loads(pa, set, now_ns, w);

	memset(w->saved, 0, count * sizeof(w->saved[0]));
	memset(w->hits, 0, count * sizeof(w->hits[0]));
	for (size_t i = 0; i < count && usable < count; i++) {
		if (set->items[i].usable)
			continue;
		inflight -= (uint32_t)w->inflight[i];
		w->costs[i] = KVW_NO_COST;
	}
	w->usable = usable;
	w->mean = usable > 0 ? (double)inflight / (double)usable : 0;
}

/* Adds what each candidate's hit in one chain, whose path was found, saves it. */
static void weigh_chain(struct kvw_prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, uint32_t begin, uint32_t end, struct kvw_weighing *w)
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
static void weigh_rest(
	const struct kvw_route_request *request, uint32_t begin, struct kvw_weighing *w)
{
	for (uint32_t c = MAX_CHAINS; c < request->chain_count; c++) {
		uint32_t tokens = kvw_chain_tokens(request, begin, request->chain_ends[c]);

		w->tokens += tokens;
		w->miss += kvw_rates_work(w->pairs, tokens, 0);
		begin = request->chain_ends[c];
	}
}

/* A prompt that is understood. */
static void weigh_prompt(struct kvw_prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct kvw_weighing *w)
{
	uint32_t begin = 0;

	w->salt = request->seed;
	w->tokens = 0;
	w->miss = 0;
	w->omega = (float)pa->omega;
	w->reach.limit = set->count > 0 ? set->items[set->count - 1].id + 1 : 0;
	w->chains = request->chain_count < MAX_CHAINS ? request->chain_count : MAX_CHAINS;
	w->pairs = atomic_load_explicit(&pa->rates.pairs, memory_order_relaxed);
	if (is_dense(set))
		prefetch_board(set);
	for (uint32_t c = 0; c < w->chains; c++) {
		uint32_t end = request->chain_ends[c];

		kvw_radix_reach_nobody(&w->reach);
		kvw_radix_find(pa->tree, request->chunks + begin, end - begin, &w->path);
		if (c == 0)
			weigh_load(pa, set, now_ns, w); /* while nodes arrive */
		weigh_chain(pa, request, set, begin, end, w);
		begin = end;
	}
	weigh_rest(request, begin, w);
}

/* A prompt of which nothing is known, or one that leaves nothing in the cache. */
static void weigh_blind(struct kvw_prefixaware *pa, const struct kvw_candidates *set,
	int64_t now_ns, struct kvw_weighing *w)
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
	return request->content_known && request->teaches && request->chunk_count > 0 &&
	       request->chain_count > 0;
}

void kvw_weigh_sum(
	const struct kvw_prefixaware *pa, const struct kvw_candidates *set, struct kvw_weighing *w)
{
	w->lowest = pa->kernel->sum(
		set->count, w->miss, w->omega, w->saved, w->x, w->inflight, w->costs);
}

void kvw_weigh_hits(struct kvw_prefixaware *pa, const struct kvw_route_request *request,
	const struct kvw_candidates *set, int64_t now_ns, struct kvw_weighing *w)
{
	assert(set->count <= KVW_MAX_WORKERS);
	if (is_understood(request))
		weigh_prompt(pa, request, set, now_ns, w);
	else
		weigh_blind(pa, set, now_ns, w);
}
