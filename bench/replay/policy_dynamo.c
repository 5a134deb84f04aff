/*
 * policy_dynamo.c - Dynamo's KV router: prefill to be done plus blocks in use, in blocks.
 *
 *     cost = max(active prefill + this prompt - overlap, 0) + decode blocks
 *
 * Active prefill counts the whole tokens of requests without a first token less what was cached;
 * decode blocks are the distinct blocks of all requests in flight there with this one among them,
 * so that sharing is credited. Blocks are counted in parts, as the trace's last blocks are.
 */
#include "bench/load/mem.h"
#include "bench/replay/replay_policy.h"

#include <assert.h>
#include <stdlib.h>

#define BLOCK 16.0 /* tokens */

/* A block in use on a worker. */
struct used {
	uint64_t key; /* 0: free slot */
	uint32_t count;
};

struct dynamo {
	const struct kvb_fleet *fleet;
	uint64_t random;
	double prefill_scale;
	struct used *slots; /* a table with open addressing and linear probing */
	size_t mask, filled;
	double *active; /* number of distinct blocks in use, by worker */
};

static void *create(const struct kvb_policy_env *env)
{
	struct dynamo *d = kvb_alloc(1, sizeof(*d));

	d->fleet = env->fleet;
	d->random = env->seed;
	d->prefill_scale = env->param;
	d->mask = (1u << 12) - 1;
	d->slots = kvb_alloc(d->mask + 1, sizeof(d->slots[0]));
	d->active = kvb_alloc(env->fleet->options.workers, sizeof(d->active[0]));
	return d;
}

static uint64_t key_of(uint64_t id, uint32_t worker)
{
	return kvb_mix(id ^ kvb_mix(worker)) | 1;
}

/* Returns the slot of a key, or the free slot for it. */
static struct used *slot_of(const struct dynamo *d, uint64_t key)
{
	size_t i = (key >> 1) & d->mask;

	while (d->slots[i].key != 0 && d->slots[i].key != key)
		i = (i + 1) & d->mask;
	return &d->slots[i];
}

static void grow(struct dynamo *d)
{
	struct used *old = d->slots;
	size_t count = d->mask + 1;

	d->mask = count * 2 - 1;
	d->slots = kvb_alloc(count * 2, sizeof(d->slots[0]));
	for (size_t i = 0; i < count; i++)
		if (old[i].key != 0)
			*slot_of(d, old[i].key) = old[i];
	free(old);
}

/* Frees a slot, and moves later entries up that could not be found otherwise. */
static void take_out(struct dynamo *d, struct used *slot)
{
	size_t hole = (size_t)(slot - d->slots);

	d->filled--;
	for (size_t i = (hole + 1) & d->mask; d->slots[i].key != 0; i = (i + 1) & d->mask) {
		size_t home = (d->slots[i].key >> 1) & d->mask;

		if (((i - home) & d->mask) >= ((i - hole) & d->mask)) {
			d->slots[hole] = d->slots[i];
			hole = i;
		}
	}
	d->slots[hole].key = 0;
}

/* Returns the number of blocks of a prompt's i-th id; the last block may count in part. */
static double blocks_of(const struct kvb_job *job, uint32_t i)
{
	uint32_t left = job->input - i * KVB_ID_TOKENS;

	return (left < KVB_ID_TOKENS ? left : KVB_ID_TOKENS) / BLOCK;
}

/* Returns how many blocks of the prompt are not in use on the worker. */
static double new_blocks(const struct dynamo *d, const struct kvb_job *job, uint32_t worker)
{
	double blocks = 0;

	for (uint32_t i = 0; i < job->id_count; i++)
		if (slot_of(d, key_of(job->ids[i], worker))->key == 0)
			blocks += blocks_of(job, i);
	return blocks;
}

static void use_blocks(struct dynamo *d, const struct kvb_job *job, uint32_t worker)
{
	for (uint32_t i = 0; i < job->id_count; i++) {
		uint64_t key = key_of(job->ids[i], worker);
		struct used *slot;

		if (d->filled * 2 > d->mask)
			grow(d);
		slot = slot_of(d, key);
		if (slot->key == 0) {
			slot->key = key;
			slot->count = 0;
			d->filled++;
			d->active[worker] += blocks_of(job, i);
		}
		slot->count++;
	}
}

static uint32_t pick(void *self, uint32_t job, int64_t now_ns)
{
	struct dynamo *d = self;
	const struct kvb_job *j = &d->fleet->jobs->items[job];
	uint32_t workers = d->fleet->options.workers;
	double costs[KVB_MAX_WORKERS];
	uint32_t best = 0;

	(void)now_ns;
	for (uint32_t w = 0; w < workers; w++) {
		double prefill = (double)d->fleet->workers[w].sent.prefill_tokens + j->input -
				 kvb_fleet_hit(d->fleet, w, j);

		costs[w] = d->prefill_scale * prefill / BLOCK + d->active[w] + new_blocks(d, j, w);
	}
	best = kvb_lowest(costs, workers, &d->random);
	use_blocks(d, j, best);
	return best;
}

static void done(void *self, uint32_t job, int64_t now_ns)
{
	struct dynamo *d = self;
	const struct kvb_job *j = &d->fleet->jobs->items[job];
	uint32_t worker = d->fleet->courses[job].worker;

	(void)now_ns;
	for (uint32_t i = 0; i < j->id_count; i++) {
		struct used *slot = slot_of(d, key_of(j->ids[i], worker));

		assert(slot->key != 0);
		if (--slot->count == 0) {
			d->active[worker] -= blocks_of(j, i);
			take_out(d, slot);
		}
	}
}

static void destroy(void *self)
{
	struct dynamo *d = self;

	free(d->slots);
	free(d->active);
	free(d);
}

const struct kvb_policy_ops kvb_dynamo_ops = {
	.create = create, .pick = pick, .done = done, .destroy = destroy};
