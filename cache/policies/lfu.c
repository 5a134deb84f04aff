/*
 * lfu.c - evicts the least often used chunk, with ageing (LFU-DA).
 *
 * A chunk's key is its number of uses plus the age of the tier at its last use; the age is the key
 * of the last victim. So new chunks overtake a chunk that was popular long ago, which would
 * otherwise stay for ever. Among equals the chunk that was used longest ago is evicted. (Arlitt et
 * al., 2000.)
 *
 * 20 bytes per entry, O(log n) per call.
 */
#include <stdlib.h>

#include "policies/entry_heap.h"
#include "policies/policies.h"

/* the upper bits of a key are age plus uses, the lower ones the order of calls */
#define USE_SHIFT 40
#define MOST_USES UINT16_MAX

struct lfu {
	struct kvt_policy base;
	struct kvt_entry_heap heap;
	uint64_t age; /* the tier's age, in the unit of keys */
	uint64_t
		/* number of calls, below 1 << USE_SHIFT; it wraps after years, and then misorders a
		 * few entries */
		calls;
	uint64_t own; /* bytes of the array */
	uint16_t uses[];
};

static void lfu_destroy(struct kvt_policy *p)
{
	struct lfu *lfu = (struct lfu *)p;

	if (lfu == NULL)
		return;
	kvt_entry_heap_finish(&lfu->heap);
	free(lfu);
}

static enum kvt_status lfu_create(const struct kvt_policy_options *options, struct kvt_policy **out)
{
	const uint64_t own = sizeof(struct lfu) + (uint64_t)options->max_entries * sizeof(uint16_t);
	struct lfu *lfu = calloc(1, own);
	enum kvt_status status = KVT_ENOMEM;

	if (lfu == NULL)
		return KVT_ENOMEM;
	lfu->base.ops = &kvt_policy_lfu;
	lfu->own = own;
	status = kvt_entry_heap_init(&lfu->heap, options->max_entries);
	if (status != KVT_OK) {
		free(lfu);
		return status;
	}
	*out = &lfu->base;
	return KVT_OK;
}

static uint64_t key_of(struct lfu *lfu, uint32_t entry)
{
	lfu->calls = (lfu->calls + 1) & (((uint64_t)1 << USE_SHIFT) - 1);
	return (lfu->age + lfu->uses[entry]) << USE_SHIFT | lfu->calls;
}

static void lfu_added(struct kvt_policy *p, uint32_t entry, const struct kvt_policy_item *item)
{
	struct lfu *lfu = (struct lfu *)p;

	(void)item;
	lfu->uses[entry] = 1;
	kvt_entry_heap_add(&lfu->heap, entry, key_of(lfu, entry));
}

static void lfu_used(struct kvt_policy *p, uint32_t entry)
{
	struct lfu *lfu = (struct lfu *)p;

	if (lfu->uses[entry] < MOST_USES)
		lfu->uses[entry]++;
	kvt_entry_heap_raise(&lfu->heap, entry, key_of(lfu, entry));
}

static void lfu_removed(struct kvt_policy *p, uint32_t entry, bool evicted)
{
	struct lfu *lfu = (struct lfu *)p;
	const uint64_t age = lfu->heap.keys[entry] >> USE_SHIFT;

	if (evicted && age > lfu->age)
		lfu->age = age;
	kvt_entry_heap_remove(&lfu->heap, entry);
}

static uint32_t lfu_victim(
	struct kvt_policy *p, bool (*may)(void *self, uint32_t entry), void *self)
{
	return kvt_entry_heap_victim(&((struct lfu *)p)->heap, may, self);
}

static void lfu_memory(const struct kvt_policy *p, uint64_t *own, uint64_t *ghosts)
{
	const struct lfu *lfu = (const struct lfu *)p;

	*own = lfu->own + lfu->heap.own;
	*ghosts = 0;
}

const struct kvt_policy_ops kvt_policy_lfu = {
	.name = "lfu",
	.create = lfu_create,
	.added = lfu_added,
	.used = lfu_used,
	.removed = lfu_removed,
	.victim = lfu_victim,
	.memory = lfu_memory,
	.destroy = lfu_destroy,
};
