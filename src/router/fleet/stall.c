/* stall.c - detects an engine that has stopped behind a living API server. */
#include "fleet/stall.h"

#include "base/clock.h"

void kvw_stall_clear(struct kvw_stall *stall)
{
	atomic_store_explicit(&stall->waiting, 0, memory_order_relaxed);
	atomic_store_explicit(&stall->heard_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&stall->longest_ns, 0, memory_order_relaxed);
	atomic_store_explicit(&stall->state, KVW_STALL_NONE, memory_order_relaxed);
	atomic_store_explicit(&stall->moved_ns, 0, memory_order_relaxed);
	stall->progress = 0;
	stall->still_ns = stall->read_ns = 0;
	stall->running = false;
}

void kvw_stall_wait(struct kvw_stall *stall, int64_t prefill_ns, int64_t now_ns)
{
	if (atomic_fetch_add_explicit(&stall->waiting, 1, memory_order_relaxed) == 0) {
		atomic_store_explicit(&stall->heard_ns, now_ns, memory_order_relaxed);
		atomic_store_explicit(&stall->longest_ns, prefill_ns, memory_order_relaxed);
	} else if (prefill_ns > atomic_load_explicit(&stall->longest_ns, memory_order_relaxed)) {
		atomic_store_explicit(&stall->longest_ns, prefill_ns, memory_order_relaxed);
	}
}

void kvw_stall_left(struct kvw_stall *stall)
{
	atomic_fetch_sub_explicit(&stall->waiting, 1, memory_order_relaxed);
}

void kvw_stall_read(struct kvw_stall *stall, double progress, bool running, int64_t now_ns)
{
	int64_t heard_ns = atomic_load_explicit(&stall->heard_ns, memory_order_relaxed);

	if (stall->read_ns == 0 || progress != stall->progress || heard_ns > stall->still_ns)
		stall->still_ns = now_ns;
	if (stall->read_ns != 0 && progress > stall->progress)
		atomic_store_explicit(&stall->moved_ns, now_ns, memory_order_relaxed);
	stall->progress = progress;
	stall->running = running;
	stall->read_ns = now_ns;
}

int64_t kvw_stall_silent_ns(const struct kvw_stall *stall, int64_t now_ns)
{
	return atomic_load_explicit(&stall->waiting, memory_order_relaxed) == 0
		? 0
		: now_ns - atomic_load_explicit(&stall->heard_ns, memory_order_relaxed);
}

enum kvw_stall_state kvw_stall_judge(
	const struct kvw_stall *stall, int64_t limit_ns, int64_t now_ns)
{
	int64_t silent_ns = kvw_stall_silent_ns(stall, now_ns);
	int64_t still_ns = stall->read_ns - stall->still_ns;
	int64_t least_ns = 3 * atomic_load_explicit(&stall->longest_ns, memory_order_relaxed);

	if (limit_ns < least_ns)
		limit_ns = least_ns;
	/* The API server may be busy even if the engine has no running request. */
	if (!stall->running)
		limit_ns *= 2;
	if (silent_ns < limit_ns / 3 || stall->still_ns <= now_ns - silent_ns)
		return KVW_STALL_NONE;
	if (silent_ns >= limit_ns && still_ns >= limit_ns / 2)
		return KVW_STALL_FOUND;
	return still_ns >= limit_ns / 10 ? KVW_STALL_SUSPECTED : KVW_STALL_NONE;
}
