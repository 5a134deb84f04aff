/*
 * timer.h - an event loop's timeouts, without a system call or a heap.
 *
 * Timeouts of one kind have one duration, so a timeout set later is due later: each kind is a list
 * in order of deadline, and setting or clearing a timeout takes a few stores. The loop's tick
 * checks the front of each list. Precision is that of the tick.
 *
 * Threads: belongs to one loop.
 */
#ifndef KVW_TIMER_H
#define KVW_TIMER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/queue.h>

struct kvw_timer;
typedef void (*kvw_timer_fn)(struct kvw_timer *timer, int64_t now_ns);

/* A timer, embedded in its owner. All zeroes but `fn`: not running, and ready to be set. */
struct kvw_timer {
	TAILQ_ENTRY(kvw_timer) entry;
	int64_t deadline_ns; /* 0: not running */
	uint8_t kind;
	kvw_timer_fn fn;
};

TAILQ_HEAD(kvw_timer_list, kvw_timer);

#define KVW_TIMER_KINDS 19

struct kvw_timers {
	struct kvw_timer_list lists[KVW_TIMER_KINDS];
};

void kvw_timers_init(struct kvw_timers *timers);

/* Starts a timer, or starts it again. kind must be below KVW_TIMER_KINDS. Cheapest if all timers of
 * a kind have the same duration. */
void kvw_timer_set(struct kvw_timers *timers, struct kvw_timer *timer, uint8_t kind,
	int64_t deadline_ns);
void kvw_timer_clear(struct kvw_timers *timers, struct kvw_timer *timer); /* idle: nothing */

/* Calls fn of every timer that is due; the timer is cleared before the call. */
void kvw_timers_run(struct kvw_timers *timers, int64_t now_ns);

static inline bool kvw_timer_running(const struct kvw_timer *timer)
{
	return timer->deadline_ns != 0;
}

#endif
