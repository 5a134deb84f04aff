/*
 * counter.h - a number that one thread counts and any thread reads.
 *
 * Relaxed atomics without a locked instruction: a reader sees each number whole, and may see two of
 * them one event apart. A number counted by several threads needs atomic_fetch_add instead.
 */
#ifndef KVW_COUNTER_H
#define KVW_COUNTER_H

#include <stdatomic.h>
#include <stdint.h>

/* Adds to an atomic number that only the calling thread writes: with plain loads and stores, which
 * need no lock prefix. */
static inline void kvw_bump(_Atomic uint64_t *value, uint64_t n)
{
	atomic_store_explicit(
		value, atomic_load_explicit(value, memory_order_relaxed) + n, memory_order_relaxed);
}

static inline uint64_t kvw_counted(const _Atomic uint64_t *value)
{
	return atomic_load_explicit(value, memory_order_relaxed);
}

#endif
