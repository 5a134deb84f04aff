/*
 * policy_cache_aware.c - cache_aware of SGLang's gateway and vllm-router.
 *
 * If the requests in flight differ by more than 64 and by more than half, the least loaded worker
 * is chosen. Else the prompt is looked up in one tree of all prompts sent, kept by characters:
 * with more than 0.3 of it found, it goes to the worker that first brought the deepest part found
 * there; otherwise to the least loaded. The tree learns where the prompt went either way. Each
 * worker's part is cut to 2^26 characters every 120 s, leaves least recently sent first.
 *
 * The tree here is by blocks of the trace, which is as fine as a trace is; a token is four
 * characters.
 */
#include "bench/load/mem.h"
#include "bench/replay/replay_policy.h"

#include <stdlib.h>
#include <string.h>

#define BALANCE_ABS    64
#define BALANCE_REL    1.5
#define CHARS          4 /* of a token */
#define MAX_CHARS      (UINT64_C(1) << 26)
#define EVICT_EVERY_NS (INT64_C(120) * 1000000000)
#define NO_WORKER      UINT16_MAX

struct node {
	uint64_t id; /* hash of the block and all blocks before it; 0: free slot */
	uint32_t chars;
	uint32_t depth;
	/* first worker that got this block, while it holds the block; else NO_WORKER */
	uint16_t owner;
};

struct cache_aware {
	const struct kvb_fleet *fleet;
	double threshold;
	uint32_t workers;
	struct node *nodes; /* open addressing, linear; nodes are not taken out */
	uint32_t *sent; /* [slot * workers + worker]: its last turn as a leaf + 1; 0: not held */
	size_t mask, filled;
	uint64_t *chars; /* by worker */
	uint32_t turn;
	int64_t next_evict_ns;
};

static void *create(const struct kvb_policy_env *env)
{
	struct cache_aware *ca = kvb_alloc(1, sizeof(*ca));

	ca->fleet = env->fleet;
	ca->threshold = env->param;
	ca->workers = env->fleet->options.workers;
	ca->mask = (1u << 12) - 1;
	ca->nodes = kvb_alloc(ca->mask + 1, sizeof(ca->nodes[0]));
	ca->sent = kvb_alloc((ca->mask + 1) * ca->workers, sizeof(ca->sent[0]));
	ca->chars = kvb_alloc(ca->workers, sizeof(ca->chars[0]));
	ca->next_evict_ns = EVICT_EVERY_NS;
	return ca;
}

static size_t slot_of(const struct cache_aware *ca, uint64_t id)
{
	size_t i = id & ca->mask;

	while (ca->nodes[i].id != 0 && ca->nodes[i].id != id)
		i = (i + 1) & ca->mask;
	return i;
}

static void grow(struct cache_aware *ca)
{
	struct cache_aware old = *ca;
	size_t row = ca->workers * sizeof(ca->sent[0]);

	ca->mask = ca->mask * 2 + 1;
	ca->nodes = kvb_alloc(ca->mask + 1, sizeof(ca->nodes[0]));
	ca->sent = kvb_alloc((ca->mask + 1) * ca->workers, sizeof(ca->sent[0]));
	for (size_t i = 0; i <= old.mask; i++) {
		size_t to;

		if (old.nodes[i].id == 0)
			continue;
		to = slot_of(ca, old.nodes[i].id);
		ca->nodes[to] = old.nodes[i];
		memcpy(&ca->sent[to * ca->workers], &old.sent[i * ca->workers], row);
	}
	free(old.nodes);
	free(old.sent);
}

/* Returns a worker that holds the node; NO_WORKER if all workers have evicted it. */
static uint32_t holder_of(struct cache_aware *ca, size_t slot)
{
	struct node *node = &ca->nodes[slot];

	for (uint32_t w = 0; w < ca->workers && node->owner == NO_WORKER; w++)
		if (ca->sent[slot * ca->workers + w] != 0)
			node->owner = (uint16_t)w;
	return node->owner;
}

/* Returns how many characters of the job the tree has; *owner: the worker of the deepest such
 * node. */
static uint64_t match(struct cache_aware *ca, const struct kvb_job *job, uint32_t *owner)
{
	uint64_t chars = 0;

	*owner = NO_WORKER;
	for (uint32_t i = 0; i < job->id_count; i++) {
		size_t slot = slot_of(ca, job->ids[i]);
		uint32_t holder = NO_WORKER;

		if (ca->nodes[slot].id != 0)
			holder = holder_of(ca, slot);
		if (holder == NO_WORKER)
			break;
		chars += ca->nodes[slot].chars;
		*owner = holder;
	}
	return chars;
}

static void insert(struct cache_aware *ca, const struct kvb_job *job, uint32_t worker)
{
	ca->turn++;
	for (uint32_t i = 0; i < job->id_count; i++) {
		uint32_t left = job->input - i * KVB_ID_TOKENS;
		bool leaf = i + 1 == job->id_count;
		struct node *node;
		uint32_t *sent;
		size_t slot;

		if (ca->filled * 2 > ca->mask)
			grow(ca);
		slot = slot_of(ca, job->ids[i]);
		node = &ca->nodes[slot];
		sent = &ca->sent[slot * ca->workers + worker];
		if (node->id == 0) {
			*node = (struct node){.id = job->ids[i],
				.chars = CHARS * (left < KVB_ID_TOKENS ? left : KVB_ID_TOKENS),
				.depth = i,
				.owner = (uint16_t)worker};
			ca->filled++;
		}
		if (*sent == 0)
			ca->chars[worker] += node->chars;
		if (*sent == 0 || leaf)
			*sent = ca->turn;
	}
}

/* A node of a worker, as eviction sorts them: longest not sent first, leaves first. */
struct victim {
	uint32_t sent, depth;
	size_t slot;
};

static int by_age(const void *a, const void *b)
{
	const struct victim *x = a;
	const struct victim *y = b;

	if (x->sent != y->sent)
		return x->sent < y->sent ? -1 : 1;
	return x->depth > y->depth ? -1 : x->depth < y->depth;
}

static void evict_worker(struct cache_aware *ca, uint32_t worker)
{
	struct victim *victims = kvb_alloc(ca->filled + 1, sizeof(victims[0]));
	size_t count = 0;

	for (size_t i = 0; i <= ca->mask; i++)
		if (ca->nodes[i].id != 0 && ca->sent[i * ca->workers + worker] != 0)
			victims[count++] = (struct victim){
				ca->sent[i * ca->workers + worker], ca->nodes[i].depth, i};
	qsort(victims, count, sizeof(victims[0]), by_age);
	for (size_t i = 0; i < count && ca->chars[worker] > MAX_CHARS; i++) {
		struct node *node = &ca->nodes[victims[i].slot];

		ca->chars[worker] -= node->chars;
		ca->sent[victims[i].slot * ca->workers + worker] = 0;
		if (node->owner == worker)
			node->owner = NO_WORKER;
	}
	free(victims);
}

static uint32_t pick(void *self, uint32_t job, int64_t now_ns)
{
	struct cache_aware *ca = self;
	const struct kvb_job *j = &ca->fleet->jobs->items[job];
	uint32_t least = 0;
	uint32_t most = 0;
	uint32_t owner = NO_WORKER;
	uint64_t found = 0;
	uint32_t low;
	uint32_t high;

	for (; now_ns >= ca->next_evict_ns; ca->next_evict_ns += EVICT_EVERY_NS)
		for (uint32_t w = 0; w < ca->workers; w++)
			if (ca->chars[w] > MAX_CHARS)
				evict_worker(ca, w);
	for (uint32_t w = 1; w < ca->workers; w++) {
		if (ca->fleet->workers[w].sent.inflight < ca->fleet->workers[least].sent.inflight)
			least = w;
		if (ca->fleet->workers[w].sent.inflight > ca->fleet->workers[most].sent.inflight)
			most = w;
	}
	low = ca->fleet->workers[least].sent.inflight;
	high = ca->fleet->workers[most].sent.inflight;
	if (high - low <= BALANCE_ABS || high <= BALANCE_REL * low)
		found = match(ca, j, &owner);
	if (owner == NO_WORKER || (double)found <= ca->threshold * CHARS * j->input)
		owner = least;
	insert(ca, j, owner);
	return owner;
}

static void destroy(void *self)
{
	struct cache_aware *ca = self;

	free(ca->nodes);
	free(ca->sent);
	free(ca->chars);
	free(ca);
}

const struct kvb_policy_ops kvb_cache_aware_ops = {
	.create = create, .pick = pick, .destroy = destroy};
