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

/* Counts a slot in (sign 1) or out (-1). Pool locked. */
static void count(struct kvw_pool_use *use, uint32_t chunks, int64_t sign)
{
	use->slots += sign;
	if (chunks == 0)
		return;
	use->nodes += sign;
	use->chunks += sign * chunks;
	if (sign < 0)
		use->dropped += chunks;
}

/* Head of a pool's list, counted as taken; 0: empty. */
static uint32_t pop(struct kvw_radix *tree, struct kvw_pool *pool, uint32_t chunks)
{
	uint32_t index = 0;

	kvw_spin_lock(&pool->lock);
	index = pool->free;
	if (index != 0) {
		pool->free =
			atomic_load_explicit(&kvw_slot_at(tree, index)->link, memory_order_relaxed);
		count(&pool->use, chunks, 1);
	}
	kvw_spin_unlock(&pool->lock);
	return index;
}

/* Pool locked. */
static void push(struct kvw_radix *tree, struct kvw_pool *pool, uint32_t index)
{
	atomic_store_explicit(&kvw_slot_at(tree, index)->link, pool->free, memory_order_relaxed);
	pool->free = index;
}

/* Gives the pool some slots that were never used. False: there are none. */
static bool refill(struct kvw_radix *tree, struct kvw_pool *pool)
{
	uint32_t first = atomic_load_explicit(&tree->fresh, memory_order_relaxed);
	uint32_t end = 0;

	do {
		if (first >= tree->slot_count)
			return false;
		end = tree->slot_count - first < FRESH_BATCH ? tree->slot_count
							     : first + FRESH_BATCH;
	} while (!atomic_compare_exchange_weak_explicit(
		&tree->fresh, &first, end, memory_order_relaxed, memory_order_relaxed));
	kvw_spin_lock(&pool->lock);
	for (uint32_t i = end; i-- > first;)
		push(tree, pool, i);
	kvw_spin_unlock(&pool->lock);
	return true;
}

uint32_t kvw_slot_take(struct kvw_radix *tree, struct kvw_pool *pool, uint32_t chunks)
{
	uint32_t index = pop(tree, pool, chunks);

	for (unsigned i = 0; index == 0 && i < MAX_TRIES; i++) {
		if (!refill(tree, pool) && !kvw_radix_evict(tree, pool))
			break;
		index = pop(tree, pool, chunks);
	}
	for (unsigned i = 0; index == 0 && i < KVW_POOLS; i++)
		index = pop(tree, &tree->pools[i], chunks);
	return index;
}

void kvw_slot_give(struct kvw_radix *tree, struct kvw_pool *pool, uint32_t index, uint32_t chunks)
{
	struct kvw_slot *slot = kvw_slot_at(tree, index);

	atomic_store_explicit(&slot->key, 0, memory_order_release);
	atomic_store_explicit(&slot->refs, 0, memory_order_release);
	atomic_store_explicit(&slot->used, 0, memory_order_release);
	atomic_store_explicit(&slot->length, 0, memory_order_release);
	atomic_store_explicit(&slot->overflow, 0, memory_order_release);
	kvw_spin_lock(&pool->lock);
	push(tree, pool, index);
	count(&pool->use, chunks, -1);
	kvw_spin_unlock(&pool->lock);
}
