/*
 * duty.h - a task that one of several processes has to do. The part that does the task asks here
 * whether it is this process; the thread that agrees with the other processes answers here.
 *
 * Weak on purpose: while the agreement cannot be reached, each process does the task, which must be
 * harmless twice.
 *
 * Threads: any.
 */
#ifndef KVW_DUTY_H
#define KVW_DUTY_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/clock.h"

/* A process that has died is taken to do the task so long. */
#define KVW_DUTY_LIFE_NS (10 * KVW_NS_PER_S)

/* Zeroed: not wanted, and no process has it. */
struct kvw_duty {
	_Atomic bool wanted;          /* this process has the task to do */
	_Atomic int64_t elsewhere_ns; /* another process does it, until then (monotonic) */
};

static inline bool kvw_duty_elsewhere(const struct kvw_duty *duty, int64_t now_ns)
{
	return duty != NULL &&
	       now_ns < atomic_load_explicit(&duty->elsewhere_ns, memory_order_relaxed);
}

#endif
