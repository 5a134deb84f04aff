/*
 * pick_load.c - prompts, the tree that they walk, and the loop that is timed.
 *
 * A decision is what the proxy does for one request: pick (walk, weigh, choose, insert the new
 * suffix), take the lease, and for a request that was picked OUTSTANDING decisions before: first
 * token, done with an answer that says what was predicted, release. The tree is at its limit in
 * bytes, so every insert also evicts.
 *
 * Prompts are made in small batches outside the measured time; like a chain that the body scan
 * has just folded, they are in the cache when the pick begins, the tree is not.
 */
#include "bench/micro/pick_load.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench/timing.h"
#include "routing/prefixaware.h"
#include "routing/radix_node.h"

#define BATCH         64
#define OUTSTANDING   64  /* leases held per thread */
#define NODE_BYTES    296 /* bytes of a node, its share of the table included */
#define CROWDED_BYTES 366 /* the same, if some nodes have more holders than a slot has room for */

int64_t kvb_clock_ns(void)
{
	return kvb_read_ns(CLOCK_MONOTONIC);
}

int64_t kvb_cpu_ns(void)
{
	return kvb_read_ns(CLOCK_THREAD_CPUTIME_ID);
}

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
	x = (x ^ x >> 27) * UINT64_C(0x94D049BB133111EB);
	return x ^ x >> 31;
}

uint64_t kvb_dice(uint64_t *state)
{
	return mix(*state += UINT64_C(0x9E3779B97F4A7C15));
}

/* --- prompts --- */

static uint64_t leaf_count(const struct kvb_shape *shape)
{
	uint64_t count = shape->roots;

	for (unsigned level = 1; level < KVB_PICK_LEVELS; level++)
		count *= shape->fan;
	return count;
}

uint64_t kvb_shape_nodes(const struct kvb_shape *shape)
{
	uint64_t nodes = 0;
	uint64_t width = shape->roots;
	uint32_t known = shape->depth - shape->fresh;

	for (uint32_t level = 0; level < KVB_PICK_LEVELS; level++) {
		uint32_t length =
			known * (level + 1) / KVB_PICK_LEVELS - known * level / KVB_PICK_LEVELS;

		nodes += width * ((length + KVW_RADIX_RUN - 1) / KVW_RADIX_RUN);
		width *= shape->fan;
	}
	return nodes;
}

/* Makes the chunks of path number `path` (below leaf_count), with a suffix that only `unique`
 * has. */
static void make_prompt(
	const struct kvb_shape *shape, uint64_t path, uint64_t unique, struct kvw_chunk *chunks)
{
	uint32_t known = shape->depth - shape->fresh;
	uint64_t hash = 1;
	uint64_t rest = path;
	uint32_t at = 0;

	for (uint32_t level = 0; level < KVB_PICK_LEVELS && known > 0; level++) {
		uint32_t fan = level == 0 ? shape->roots : shape->fan;
		uint32_t end = known * (level + 1) / KVB_PICK_LEVELS;

		for (uint32_t first = at; at < end; at++) {
			hash = mix(hash + (at == first ? 2 + rest % fan : 1));
			chunks[at] = (struct kvw_chunk){hash, (at + 1) * KVB_PICK_UNITS, 0};
		}
		rest /= fan;
	}
	hash = mix(hash + unique);
	for (; at < shape->depth; at++) {
		hash = mix(hash + 1);
		chunks[at] = (struct kvw_chunk){hash, (at + 1) * KVB_PICK_UNITS, 0};
	}
}

static struct kvw_route_request request_for(const struct kvw_chunk *chunks, const uint32_t *depth)
{
	return (struct kvw_route_request){
		.api = KVW_API_CHAT,
		.content_known = true,
		.teaches = true,
		.tokens_per_unit = (float)KVB_PICK_TOKENS / KVB_PICK_UNITS,
		.chunks = chunks,
		.chunk_count = *depth,
		.chain_ends = depth,
		.chain_count = 1,
	};
}

/* --- the tree --- */

/* Makes idle workers, each with a load. */
static bool make_workers(struct kvb_pick *pick)
{
	uint32_t workers = pick->shape.workers;

	pick->loads = aligned_alloc(64, workers * sizeof(*pick->loads));
	pick->board = aligned_alloc(64, sizeof(*pick->board));
	if (pick->loads == NULL || pick->board == NULL)
		return false;
	for (uint32_t i = 0; i < workers; i++) {
		kvw_load_init_on(&pick->loads[i], pick->board, i);
		pick->items[i] = (struct kvw_candidate){
			.id = i,
			.key = mix(i + 1),
			.load = &pick->loads[i],
			.block_size = 16,
			.share = 1,
			.usable = true,
		};
	}
	pick->set = (struct kvw_candidates){pick->items, workers, pick->board, 1};
	return true;
}

/* Returns one of the workers that hold a path. All paths with one beginning have the same `holders`
 * workers. */
static uint32_t holder_of(const struct kvb_shape *shape, uint64_t path, uint32_t i)
{
	uint32_t stride = shape->workers / shape->roots;
	uint64_t first = path % shape->roots * (stride > 7 ? stride : 7);

	return (uint32_t)((first + (mix(path) + i) % shape->holders) % shape->workers);
}

/* Returns how many of these workers hold the path's leaf. */
static uint32_t copies_of(const struct kvb_shape *shape, uint64_t path)
{
	return 1 + (uint32_t)(mix(~path) % shape->copies);
}

/* Enters every path for 1 to `copies` workers. False: no memory. */
static bool populate(struct kvb_pick *pick)
{
	const struct kvb_shape *shape = &pick->shape;
	struct kvw_chunk *chunks = calloc(KVB_PICK_MAX_DEPTH, sizeof(*chunks));
	uint64_t leaves = leaf_count(shape);
	struct kvb_shape bare = *shape;

	if (chunks == NULL)
		return false;
	bare.depth -= bare.fresh;
	bare.fresh = 0;
	for (uint64_t i = 0; i < leaves && bare.depth > 0; i++) {
		uint64_t path = i * UINT64_C(1000003) % leaves;
		uint32_t copies = copies_of(shape, path);
		struct kvw_route_request request = request_for(chunks, &bare.depth);

		make_prompt(&bare, path, 0, chunks);
		for (uint32_t k = 0; k < copies; k++) {
			struct kvw_candidates one = {
				&pick->items[holder_of(shape, path, k)], 1, NULL, 0};
			struct kvw_decision decision;

			if (pick->strategy->ops->pick(pick->strategy, &request, &one, (int64_t)i,
				    &decision) != KVW_OK)
				abort();
		}
	}
	free(chunks);
	return true;
}

/* Returns a capacity of about twice what each worker holds before the clock starts. */
static uint64_t capacity_for(const struct kvb_shape *shape)
{
	uint64_t leaves = leaf_count(shape);
	uint64_t above = leaves / (shape->fan - 1); /* nodes, about */
	uint64_t segments = leaves * (shape->copies + 1) / 2 + above * shape->holders;
	uint64_t tokens = segments * shape->depth * KVB_PICK_TOKENS / KVB_PICK_LEVELS;

	return 2 * tokens / shape->workers + 100000;
}

struct kvb_pick *kvb_pick_create(const struct kvb_shape *shape)
{
	struct kvb_pick *pick = calloc(1, sizeof(*pick));
	uint64_t each = shape->holders > KVW_NODE_HOLDERS ? CROWDED_BYTES : NODE_BYTES;
	struct kvw_strategy_options options = {
		.omega = 0.25,
		.prefill_tokens_per_second = 8000,
		.attention_ns_per_pair = 1.75,
		.tree_bytes = kvb_shape_nodes(shape) * each + (1 << 20),
		.capacity_tokens = capacity_for(shape),
		.inflight_bound = 2,
		.inflight_gap = 8,
		.seed = 12345,
	};
	const struct kvw_strategy_ops *ops = kvw_strategy_find("prefixaware");

	if (pick == NULL)
		return NULL;
	pick->shape = *shape;
	if (!make_workers(pick) || ops->create(&options, &pick->strategy) != KVW_OK ||
		!populate(pick)) {
		kvb_pick_destroy(pick);
		return NULL;
	}
	return pick;
}

void kvb_pick_destroy(struct kvb_pick *pick)
{
	if (pick == NULL)
		return;
	if (pick->strategy != NULL)
		pick->strategy->ops->destroy(pick->strategy);
	free(pick->loads);
	free(pick->board);
	free(pick);
}

/* Returns how many living workers hold a node. */
static uint32_t count_holders(struct kvw_radix *tree, struct kvw_slot *slot)
{
	bool seen[KVW_MAX_WORKERS] = {false};
	uint32_t count = 0;
	uint32_t next = 0;

	do {
		for (unsigned i = 0; i < atomic_load(&slot->used); i++) {
			uint64_t word = atomic_load(&slot->word[i]);
			struct kvw_holder h = kvw_holder_unpack(word);

			if (word == 0 || seen[h.worker] || !kvw_holder_alive(tree, h))
				continue;
			seen[h.worker] = true;
			count++;
		}
		next = kvw_slot_check(tree, atomic_load(&slot->overflow));
		slot = kvw_slot_at(tree, next);
	} while (next != 0);
	return count;
}

void kvb_pick_count(struct kvb_pick *pick, struct kvb_census *census)
{
	struct kvw_radix *tree = kvw_prefixaware_tree((struct kvw_prefixaware *)pick->strategy);
	struct kvw_strategy_stats stats = {0};
	uint64_t holders = 0;

	pick->strategy->ops->stats(pick->strategy, &stats);
	*census = (struct kvb_census){
		.nodes = stats.nodes,
		.chunks = stats.chunks,
		.bytes = stats.bytes,
		.mapped_bytes = stats.bytes_limit,
	};
	for (uint32_t i = 1; i < atomic_load(&tree->fresh); i++) {
		struct kvw_slot *slot = kvw_slot_at(tree, i);
		uint32_t count = 0;

		if (atomic_load(&slot->refs) != 0)
			count = count_holders(tree, slot);
		holders += count;
		if (count > census->holders_most)
			census->holders_most = count;
	}
	census->holders_mean = stats.nodes > 0 ? (double)holders / (double)stats.nodes : 0;
}

/* --- the loop --- */

/* A request whose worker was picked and whose answer has not come. */
struct pending {
	struct kvw_lease lease;
	struct kvw_decision decision;
};

/* Ends a request as if it was answered as predicted. */
static void finish(struct kvw_strategy *strategy, struct pending *p, int64_t now_ns)
{
	int64_t took = (int64_t)((double)p->decision.prefill_ns / KVW_RATES_OVERHEAD);
	struct kvw_outcome outcome = {
		.status = 200,
		.first_token = true,
		.completed = true,
		.streamed = true,
		.prompt_known = true,
		.cached_known = true,
		.prompt_tokens = p->decision.prompt_tokens,
		.cached_tokens = p->decision.hit_tokens[KVW_TIER_DEVICE],
		.first_token_ns = took,
		.served_ns = took,
	};

	if (p->lease.load == NULL)
		return;
	kvw_lease_first_token(&p->lease, now_ns);
	outcome.ahead_ns = p->lease.ahead_ns;
	outcome.behind_ns = p->lease.behind_ns;
	strategy->ops->done(strategy, &p->decision, &outcome, now_ns);
	kvw_lease_release(&p->lease, now_ns);
}

static void decide(struct kvb_pick_thread *thread, const struct kvw_route_request *request,
	struct pending *p, int64_t now_ns)
{
	struct kvb_pick *pick = thread->pick;
	struct kvw_strategy *strategy = pick->strategy;

	finish(strategy, p, now_ns);
	if (strategy->ops->pick(strategy, request, &pick->set, now_ns, &p->decision) != KVW_OK)
		abort();
	kvw_lease_take(
		&p->lease, pick->items[p->decision.pos].load, p->decision.prefill_ns, now_ns);
	thread->hit_tokens += p->decision.hit_tokens[KVW_TIER_DEVICE];
}

static void insert(struct kvb_pick_thread *thread, const struct kvw_route_request *request,
	uint32_t worker, int64_t now_ns)
{
	static _Thread_local struct kvw_radix_path path;
	struct kvw_prefixaware *pa = (struct kvw_prefixaware *)thread->pick->strategy;
	struct kvw_radix_use use = {
		.worker = worker,
		.capacity_tokens = pa->capacity_tokens,
		.tokens_per_unit = request->tokens_per_unit,
		.now_ns = now_ns,
	};

	kvw_radix_find(kvw_prefixaware_tree(pa), request->chunks, request->chunk_count, &path);
	kvw_radix_insert(kvw_prefixaware_tree(pa), request->chunks, request->chunk_count, &use, &path);
}

/* Prompts that are made before the clock starts. */
struct batch {
	struct kvw_chunk *chunks; /* [BATCH * KVB_PICK_MAX_DEPTH] */
	uint32_t holders[BATCH];  /* a worker that holds the known part of each */
};

static void fill_batch(struct kvb_pick_thread *thread, struct batch *batch)
{
	const struct kvb_shape *shape = &thread->pick->shape;
	uint64_t leaves = leaf_count(shape);

	for (unsigned i = 0; i < BATCH; i++) {
		uint64_t path = kvb_dice(&thread->seed) % leaves;
		uint64_t unique = kvb_dice(&thread->seed);

		make_prompt(shape, path, unique, batch->chunks + (size_t)i * thread->pick->shape.depth);
		batch->holders[i] =
			holder_of(shape, path, (uint32_t)(unique % copies_of(shape, path)));
	}
}

static void run_batch(
	struct kvb_pick_thread *thread, const struct batch *batch, struct pending *pending)
{
	int64_t now = kvb_clock_ns();
	int64_t begin = kvb_cpu_ns();

	for (unsigned i = 0; i < BATCH; i++) {
		struct kvw_route_request request = request_for(
			batch->chunks + (size_t)i * thread->pick->shape.depth,
			&thread->pick->shape.depth);

		if (thread->task == KVB_TASK_INSERT) {
			insert(thread, &request, batch->holders[i], now);
		} else if (thread->task == KVB_TASK_TIMED) {
			int64_t one = kvb_clock_ns();

			decide(thread, &request, &pending[thread->done % OUTSTANDING], one);
			if (thread->sample_count < KVB_PICK_SAMPLES)
				thread->samples_ns[thread->sample_count++] =
					(uint32_t)(kvb_clock_ns() - one);
		} else {
			decide(thread, &request, &pending[thread->done % OUTSTANDING], now);
		}
		thread->done++;
	}
	thread->busy_ns += kvb_cpu_ns() - begin;
}

void *kvb_pick_run(void *arg)
{
	struct kvb_pick_thread *thread = arg;
	struct pending pending[OUTSTANDING];
	struct batch batch = {
		.chunks = calloc((size_t)BATCH * KVB_PICK_MAX_DEPTH, sizeof(*batch.chunks))};

	memset(pending, 0, sizeof(pending));
	if (batch.chunks == NULL)
		abort();
	while (!atomic_load_explicit(thread->stop, memory_order_relaxed) &&
		(thread->most == 0 || thread->done < thread->most)) {
		fill_batch(thread, &batch);
		run_batch(thread, &batch, pending);
	}
	for (unsigned i = 0; i < OUTSTANDING; i++)
		finish(thread->pick->strategy, &pending[i], kvb_clock_ns());
	free(batch.chunks);
	return NULL;
}
