/* held.c - see held.h. */
#include "proxy/held.h"

void kvw_held_add(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;

	TAILQ_INSERT_TAIL(&loop->waking, x, entry);
	kvw_timer_set(&loop->timers, &x->timer, KVW_TIMER_WAKE, x->hold_until_ns);
	kvw_wakes_hold(x->wake);
}

void kvw_held_remove(struct kvw_exchange *x, enum kvw_wake_result result)
{
	struct kvw_loop *loop = x->loop;

	TAILQ_REMOVE(&loop->waking, x, entry);
	kvw_timer_clear(&loop->timers, &x->timer);
	kvw_wakes_release(loop->fleet->wakes, x->wake, result, loop->now_ns - x->rests_ns);
}

bool kvw_held_any(const struct kvw_loop *loop, const struct kvw_wake_model *model)
{
	const struct kvw_exchange *x;

	if (atomic_load_explicit(&model->held, memory_order_relaxed) == 0)
		return false; /* nor in another loop: all that wait here are for other models */
	TAILQ_FOREACH(x, &loop->waking, entry)
		if (x->wake == model)
			return true;
	return false;
}
