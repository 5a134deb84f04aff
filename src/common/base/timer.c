/*
 * timer.c - sets, clears and runs timers.
 *
 * A timer with an earlier deadline than the list's last one (after a reload changed the duration)
 * is inserted by a walk back from the end, so lists always stay in order.
 */
#include "base/timer.h"

#include <assert.h>

void kvw_timers_init(struct kvw_timers *timers)
{
	for (size_t i = 0; i < KVW_TIMER_KINDS; i++)
		TAILQ_INIT(&timers->lists[i]);
}

void kvw_timer_set(struct kvw_timers *timers, struct kvw_timer *timer, uint8_t kind,
	int64_t deadline_ns)
{
	struct kvw_timer_list *list;
	struct kvw_timer *before;

	assert(kind < KVW_TIMER_KINDS && timer->fn != NULL);
	kvw_timer_clear(timers, timer);
	list = &timers->lists[kind];
	timer->kind = kind;
	timer->deadline_ns = deadline_ns;
	before = TAILQ_LAST(list, kvw_timer_list);
	while (before != NULL && before->deadline_ns > deadline_ns)
		before = TAILQ_PREV(before, kvw_timer_list, entry);
	if (before == NULL)
		TAILQ_INSERT_HEAD(list, timer, entry);
	else
		TAILQ_INSERT_AFTER(list, before, timer, entry);
}

void kvw_timer_clear(struct kvw_timers *timers, struct kvw_timer *timer)
{
	if (timer->deadline_ns == 0)
		return;
	TAILQ_REMOVE(&timers->lists[timer->kind], timer, entry);
	timer->deadline_ns = 0;
}

void kvw_timers_run(struct kvw_timers *timers, int64_t now_ns)
{
	for (size_t i = 0; i < KVW_TIMER_KINDS; i++) {
		struct kvw_timer *timer;

		while ((timer = TAILQ_FIRST(&timers->lists[i])) != NULL &&
			timer->deadline_ns <= now_ns) {
			kvw_timer_clear(timers, timer);
			timer->fn(timer, now_ns);
		}
	}
}
