/*
 * radix_pool.c - hands out and takes back slots of the prefix tree.
 *
 * An empty pool takes fresh slots while there are any, then a neighbour's spare slots, then evicts
 * a branch into itself. No memory is allocated: the number of slots is the limit in bytes.
 */
#include "routing/radix_node.h"

#include "routing/spin.h"

#define FRESH_BATCH  8 /* slots that a pool takes at once while there are unused ones */
/* how often other threads may steal the fresh slots before this one gives up */
#define REFILL_TRIES 8

/* An empty pool gets this many slots elsewhere before it tries a neighbour, since the neighbour
 * writes to its own cache line. */
#define BORROW_TURNS 16

struct kvw_pool *kvw_pool_mine(struct kvw_radix *tree)
{
	static _Atomic uint32_t threads;
	/* number of this thread's pool, counted from 1; 0: none yet */
	static _Thread_local uint32_t mine;

	if (mine == 0)
		mine = 1 + atomic_fetch_add_explicit(&threads, 1, memory_order_relaxed) % KVW_POOLS;
	return &tree->pools[mine - 1];
}

/* Takes the first slot of a pool's list and counts it as taken; 0: the list is empty. */
static uint32_t pop(struct kvw_radix *tree, struct kvw_pool *pool)
{
	uint32_t index = 0;

	if (atomic_load_explicit(&pool->free, memory_order_relaxed) == 0)
		return 0;
	kvw_spin_lock(&pool->lock);
	index = atomic_load_explicit(&pool->free, memory_order_relaxed);
	if (index != 0) {
		atomic_store_explicit(&pool->free,
			atomic_load_explicit(&kvw_slot_at(tree, index)->link, memory_order_relaxed),
			memory_order_relaxed);
		pool->taken++;
	}
	kvw_spin_unlock(&pool->lock);
	return index;
}

/* Pool locked. */
static void push_slot(struct kvw_radix *tree, struct kvw_pool *pool, uint32_t index)
{
	atomic_store_explicit(&kvw_slot_at(tree, index)->link,
		atomic_load_explicit(&pool->free, memory_order_relaxed), memory_order_relaxed);
	atomic_store_explicit(&pool->free, index, memory_order_relaxed);
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
		push_slot(tree, pool, i);
	kvw_spin_unlock(&pool->lock);
	return true;
}

/* Takes a slot from another pool, a different one each time, but not at every call; 0: not this
 * time, or that pool is empty, too. */
static uint32_t borrow(struct kvw_radix *tree, struct kvw_pool *pool)
{
	uint32_t next = atomic_load_explicit(&pool->neighbour, memory_order_relaxed) + 1;
	struct kvw_pool *other = &tree->pools[next / BORROW_TURNS % KVW_POOLS];

	atomic_store_explicit(&pool->neighbour, next, memory_order_relaxed);
	if (next % BORROW_TURNS != 0 ||
		atomic_load_explicit(&other->free, memory_order_relaxed) == 0)
		return 0;
	return pop(tree, other);
}

uint32_t kvw_slot_take(struct kvw_radix *tree, struct kvw_pool *pool)
{
	uint32_t index = pop(tree, pool);

	/* Another thread may steal the slots that this one put into the pool. */
	for (unsigned i = 0; index == 0 && i < REFILL_TRIES && refill(tree, pool); i++)
		index = pop(tree, pool);
	if (index == 0)
		index = borrow(tree, pool);
	if (index == 0)
		index = kvw_radix_evict(tree, pool);
	for (unsigned i = 0; index == 0 && i < KVW_POOLS; i++)
		index = pop(tree, &tree->pools[i]);
	return index;
}

void kvw_slot_reset(struct kvw_slot *slot)
{
	atomic_store_explicit(&slot->key, 0, memory_order_release);
	atomic_store_explicit(&slot->refs, 0, memory_order_release);
	atomic_store_explicit(&slot->used, 0, memory_order_release);
	atomic_store_explicit(&slot->length, 0, memory_order_release);
	atomic_store_explicit(&slot->overflow, 0, memory_order_release);
}

void kvw_slot_give(struct kvw_radix *tree, struct kvw_pool *pool, uint32_t index)
{
	kvw_slot_reset(kvw_slot_at(tree, index));
	kvw_spin_lock(&pool->lock);
	push_slot(tree, pool, index);
	pool->taken--;
	kvw_spin_unlock(&pool->lock);
}
