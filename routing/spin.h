/*
 * spin.h - a lock of one byte for short sections, of some ten instructions.
 *
 * A waiting thread spins briefly, then yields the processor, since a preempted holder must be able
 * to run. A holder must not block, allocate from the system or do I/O.
 */
#ifndef KVW_SPIN_H
#define KVW_SPIN_H

#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#define KVW_SPIN_TURNS 64 /* tries before yielding the processor */

static inline void kvw_spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

/* Sequentially consistent, for threads that change something and then read the lock
 * (kvw_spin_held). */
static inline bool kvw_spin_try(atomic_bool *lock)
{
	return !atomic_exchange(lock, true);
}

/* Returns whether the lock is held. If not, writes made under it are visible. */
static inline bool kvw_spin_held(atomic_bool *lock)
{
	return atomic_load(lock);
}

static inline void kvw_spin_lock(atomic_bool *lock)
{
	unsigned turns = 0;

	while (!kvw_spin_try(lock)) {
		if (++turns % KVW_SPIN_TURNS == 0)
			sched_yield();
		else
			kvw_spin_pause();
	}
}

static inline void kvw_spin_unlock(atomic_bool *lock)
{
	atomic_store_explicit(lock, false, memory_order_release);
}

#endif
