/*
 * uses.h - a ring that carries uses of entries from readers without a lock to the policy.
 *
 * It consists of entry numbers with generations. Any thread adds; the holder of the index's mutex
 * takes. A full ring loses uses and counts them, and no thread waits: a policy that misses some
 * uses chooses a little worse. A thread that has reserved room and not written yet delays the uses
 * after its own for a moment.
 */
#ifndef KVT_USES_H
#define KVT_USES_H

#include <stdatomic.h>

#include "policies/policy.h"

struct kvt_uses {
	_Alignas(64) _Atomic uint64_t head; /* next place to be reserved */
	_Atomic uint64_t lost;
	_Alignas(64) _Atomic uint64_t tail; /* next place to be taken from */
	/* each slot: generation << 32 | entry + 1, 0: not written yet; owned */
	_Atomic uint64_t *slot;
	uint64_t size;          /* a power of two */
};

enum kvt_status kvt_uses_init(struct kvt_uses *u, uint32_t max_entries) KVT_MUST_CHECK;
void kvt_uses_finish(struct kvt_uses *u);

/* Reserves room for up to n uses: *first is the place of the first one; returns how many may be
 * added. */
uint64_t kvt_uses_reserve(struct kvt_uses *u, uint64_t n, uint64_t *first);

static inline void kvt_uses_put(
	struct kvt_uses *u, uint64_t place, uint32_t entry, uint32_t generation)
{
	atomic_store_explicit(&u->slot[place & (u->size - 1)],
		(uint64_t)generation << 32 | (entry + 1), memory_order_release);
}

/* Takes the oldest use. False: there is none, or it is not written yet. The mutex is held. */
bool kvt_uses_take(struct kvt_uses *u, uint32_t *entry, uint32_t *generation);

/* Returns whether the ring is so full that a thread should empty it. */
static inline bool kvt_uses_press(const struct kvt_uses *u)
{
	uint64_t tail = atomic_load_explicit(&u->tail, memory_order_relaxed);

	return atomic_load_explicit(&u->head, memory_order_relaxed) - tail > u->size / 4 * 3;
}

#endif
