/*
 * uses.c - the ring that carries uses of entries to the policy.
 */
#include "index/uses.h"

#include <stdlib.h>

#define MOST_USES 8192u

enum kvt_status kvt_uses_init(struct kvt_uses *u, uint32_t max_entries)
{
	u->size = 64;
	while (u->size < MOST_USES && u->size / 4 < max_entries)
		u->size *= 2;
	u->slot = calloc(u->size, sizeof(*u->slot));
	return u->slot == NULL ? KVT_ENOMEM : KVT_OK;
}

void kvt_uses_finish(struct kvt_uses *u)
{
	free((void *)u->slot);
	u->slot = NULL;
}

uint64_t kvt_uses_reserve(struct kvt_uses *u, uint64_t n, uint64_t *first)
{
	uint64_t head = atomic_load_explicit(&u->head, memory_order_relaxed), room, got;

	do {
		/* acquire: slots that were taken are emptied before they are written again */
		room = u->size - (head - atomic_load_explicit(&u->tail, memory_order_acquire));
		got = n < room ? n : room;
		if (got == 0)
			break;
	} while (!atomic_compare_exchange_weak_explicit(
		&u->head, &head, head + got, memory_order_relaxed, memory_order_relaxed));
	if (got < n)
		atomic_fetch_add_explicit(&u->lost, n - got, memory_order_relaxed);
	*first = head;
	return got;
}

bool kvt_uses_take(struct kvt_uses *u, uint32_t *entry, uint32_t *generation)
{
	uint64_t tail = atomic_load_explicit(&u->tail, memory_order_relaxed), use;
	_Atomic uint64_t *slot = &u->slot[tail & (u->size - 1)];

	if (tail == atomic_load_explicit(&u->head, memory_order_relaxed))
		return false;
	use = atomic_load_explicit(slot, memory_order_acquire);
	if (use == 0)
		return false;
	atomic_store_explicit(slot, 0, memory_order_relaxed);
	atomic_store_explicit(&u->tail, tail + 1, memory_order_release);
	*entry = (uint32_t)use - 1;
	*generation = (uint32_t)(use >> 32);
	return true;
}
