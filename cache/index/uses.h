/*
 * uses.h - uses of entries on their way from readers without a lock to the policy.
 *
 * A ring of entry numbers with generations. Any thread adds; the holder of the index's mutex takes.
 * Where there is no room uses are lost and counted, never waited for: a policy that misses some of
 * them chooses a little worse. A thread that has reserved room and not yet written holds up those
 * behind it for the moment, not for good.
 */
#ifndef KVT_USES_H
#define KVT_USES_H

#include <stdatomic.h>

#include "policies/policy.h"

struct kvt_uses {
	_Alignas(64) _Atomic uint64_t head; /* next to reserve */
	_Atomic uint64_t lost;
	_Alignas(64) _Atomic uint64_t tail; /* next to take */
	_Atomic uint64_t *slot; /* owned; generation << 32 | entry + 1, 0: not written yet */
	uint64_t size;          /* a power of two */
};

enum kvt_status kvt_uses_init(struct kvt_uses *u, uint32_t max_entries) KVT_MUST_CHECK;
void kvt_uses_finish(struct kvt_uses *u);

/* Room for up to n uses: *first is the place of the first one; returns how many may be added. */
uint64_t kvt_uses_reserve(struct kvt_uses *u, uint64_t n, uint64_t *first);

static inline void kvt_uses_put(
	struct kvt_uses *u, uint64_t place, uint32_t entry, uint32_t generation)
{
	atomic_store_explicit(&u->slot[place & (u->size - 1)],
		(uint64_t)generation << 32 | (entry + 1), memory_order_release);
}

/* The oldest one. False: none, or not written yet. With the mutex. */
bool kvt_uses_take(struct kvt_uses *u, uint32_t *entry, uint32_t *generation);

/* So full that a thread should empty it. */
static inline bool kvt_uses_press(const struct kvt_uses *u)
{
	uint64_t tail = atomic_load_explicit(&u->tail, memory_order_relaxed);

	return atomic_load_explicit(&u->head, memory_order_relaxed) - tail > u->size / 4 * 3;
}

#endif
