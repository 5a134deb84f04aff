/*
 * radix_pool.c - free slots of the prefix tree.
 *
 * A pool that is empty takes fresh slots while there are any, then evicts a branch into itself,
 * and as a last resort takes from its neighbours. No memory is asked for: the limit in bytes is
 * the number of slots.
 */
#include "radix_node.h"

#include "spin.h"

#define FRESH_BATCH 8 /* slots that a pool takes at once while there are unused ones */
#define MAX_TRIES   8 /* evictions before neighbours are asked */

/* Head of the list; 0: empty. */
static uint32_t pop(struct kvw_radix *tree, struct kvw_pool *pool)
{
	uint32_t index = 0;

	kvw_spin_lock(&pool->lock);
	index = pool->free;
	if (index != 0)
		pool->free =
			atomic_load_explicit(&kvw_slot_at(tree, index)->link, memory_order_relaxed);
	kvw_spin_unlock(&pool->lock);
	return index;
}

static void push(struct kvw_radix *tree, struct kvw_pool *pool, uint32_t index)
{
	kvw_spin_lock(&pool->lock);
	atomic_store_explicit(&kvw_slot_at(tree, index)->link, pool->free, memory_order_relaxed);
	pool->free = index;
	kvw_spin_unlock(&pool->lock);
}

/* Some slots that were never used; the first is returned, the rest go to the pool. */
static uint32_t take_fresh(struct kvw_radix *tree, struct kvw_pool *pool)
{
	uint32_t first = atomic_load_explicit(&tree->fresh, memory_order_relaxed);
	uint32_t end = 0;

	do {
		if (first >= tree->slot_count)
			return 0;
		end = tree->slot_count - first < FRESH_BATCH ? tree->slot_count
							     : first + FRESH_BATCH;
	} while (!atomic_compare_exchange_weak_explicit(
		&tree->fresh, &first, end, memory_order_relaxed, memory_order_relaxed));
	for (uint32_t i = end; --i > first;)
		push(tree, pool, i);
	return first;
}

static uint32_t take_from_neighbours(struct kvw_radix *tree)
{
	uint32_t index = 0;

	for (unsigned i = 0; i < KVW_POOLS && index == 0; i++)
		index = pop(tree, &tree->pools[i]);
	return index;
}

uint32_t kvw_slot_take(struct kvw_radix *tree, struct kvw_pool *pool)
{
	uint32_t index = pop(tree, pool);

	if (index == 0)
		index = take_fresh(tree, pool);
	for (unsigned i = 0; index == 0 && i < MAX_TRIES && kvw_radix_evict(tree, pool); i++)
		index = pop(tree, pool);
	if (index == 0)
		index = take_from_neighbours(tree);
	if (index != 0)
		atomic_fetch_add_explicit(&pool->slots, 1, memory_order_relaxed);
	return index;
}

void kvw_slot_give(struct kvw_radix *tree, struct kvw_pool *pool, uint32_t index)
{
	struct kvw_slot *slot = kvw_slot_at(tree, index);

	atomic_store_explicit(&slot->key, 0, memory_order_release);
	atomic_store_explicit(&slot->refs, 0, memory_order_release);
	atomic_store_explicit(&slot->used, 0, memory_order_release);
	atomic_store_explicit(&slot->length, 0, memory_order_release);
	atomic_store_explicit(&slot->overflow, 0, memory_order_release);
	push(tree, pool, index);
	atomic_fetch_sub_explicit(&pool->slots, 1, memory_order_relaxed);
}
