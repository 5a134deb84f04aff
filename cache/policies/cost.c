/*
 * cost.c - evicts the chunk that saves the least time per byte (GDSF over leaves).
 *
 * A chunk's worth is its uses times the time to compute it again, divided by its bytes; its key is
 * the worth plus the age of the tier at its last use, where the age is the key of the last victim.
 * (Cherkasova, 1998.) Over all chunks this order would be wrong: the first chunks of a chain are
 * the cheapest, would be evicted first, and all following chunks would be useless. Over leaves it
 * is right: a chain is given up from its end.
 *
 * Computing times are only compared between entries. Where they are unknown (0) all chunks cost the
 * same per byte, and the policy is LFU with ageing. 22 bytes per entry, O(log n) per call.
 */
#include <stdlib.h>

#include "policies/entry_heap.h"
#include "policies/policies.h"

#define KEY_MOST   (UINT64_MAX >> 1)
#define WORTH_UNIT ((float)(1u << 24)) /* unit of a key: 1 ns per byte, or 1 use of unknown cost */
#define WORTH_MOST ((float)(1ull << 56))
#define MOST_USES  UINT16_MAX

struct cost {
	struct kvt_policy base;
	struct kvt_entry_heap heap;
	uint64_t age;   /* the tier's age, in the unit of keys */
	uint64_t own;   /* bytes of the arrays */
	float *worth;   /* worth of one use, in the unit of keys, by entry; owned */
	uint16_t *uses; /* owned: by entry */
};

static void cost_destroy(struct kvt_policy *p)
{
	struct cost *cost = (struct cost *)p;

	if (cost == NULL)
		return;
	kvt_entry_heap_finish(&cost->heap);
	free(cost->worth);
	free(cost->uses);
	free(cost);
}

static enum kvt_status cost_create(
	const struct kvt_policy_options *options, struct kvt_policy **out)
{
	const size_t n = options->max_entries;
	struct cost *cost = calloc(1, sizeof(*cost));
	enum kvt_status status = KVT_ENOMEM;

	if (cost == NULL)
		return KVT_ENOMEM;
	cost->base.ops = &kvt_policy_cost;
	cost->worth = calloc(n, sizeof(*cost->worth));
	cost->uses = calloc(n, sizeof(*cost->uses));
	cost->own = sizeof(*cost) + n * (sizeof(*cost->worth) + sizeof(*cost->uses));
	if (cost->worth != NULL && cost->uses != NULL)
		status = kvt_entry_heap_init(&cost->heap, options->max_entries);
	if (status != KVT_OK) {
		cost_destroy(&cost->base);
		return status;
	}
	*out = &cost->base;
	return KVT_OK;
}

/* Each call increases the tier's age by one smallest step, so that chunks of equal worth leave in
 * the order of use. */
static uint64_t key_of(struct cost *cost, uint32_t entry)
{
	const float worth = cost->worth[entry] * (float)cost->uses[entry];

	if (cost->age < KEY_MOST)
		cost->age++;
	return cost->age + (uint64_t)(worth < WORTH_MOST ? worth : WORTH_MOST);
}

static void cost_added(struct kvt_policy *p, uint32_t entry, const struct kvt_policy_item *item)
{
	struct cost *cost = (struct cost *)p;
	const float bytes = item->bytes > 0 ? (float)item->bytes : 1;

	cost->uses[entry] = 1;
	cost->worth[entry] =
		item->cost_ns > 0 ? (float)item->cost_ns / bytes * WORTH_UNIT : WORTH_UNIT;
	kvt_entry_heap_add(&cost->heap, entry, key_of(cost, entry));
}

static void cost_used(struct kvt_policy *p, uint32_t entry)
{
	struct cost *cost = (struct cost *)p;

	if (cost->uses[entry] < MOST_USES)
		cost->uses[entry]++;
	kvt_entry_heap_raise(&cost->heap, entry, key_of(cost, entry));
}

static void cost_removed(struct kvt_policy *p, uint32_t entry, bool evicted)
{
	struct cost *cost = (struct cost *)p;
	const uint64_t key = cost->heap.keys[entry];

	if (evicted && key > cost->age)
		cost->age = key < KEY_MOST ? key : KEY_MOST;
	kvt_entry_heap_remove(&cost->heap, entry);
}

static uint32_t cost_victim(
	struct kvt_policy *p, bool (*may)(void *self, uint32_t entry), void *self)
{
	return kvt_entry_heap_victim(&((struct cost *)p)->heap, may, self);
}

static void cost_memory(const struct kvt_policy *p, uint64_t *own, uint64_t *ghosts)
{
	const struct cost *cost = (const struct cost *)p;

	*own = cost->own + cost->heap.own;
	*ghosts = 0;
}

const struct kvt_policy_ops kvt_policy_cost = {
	.name = "cost",
	.create = cost_create,
	.added = cost_added,
	.used = cost_used,
	.removed = cost_removed,
	.victim = cost_victim,
	.memory = cost_memory,
	.destroy = cost_destroy,
};
