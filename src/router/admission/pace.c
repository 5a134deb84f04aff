/* pace.c - limits a worker's prompts so that the promises of its running streams are kept. */
#include "admission/pace.h"

static int64_t get(const _Atomic int64_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

static int32_t count_of(const _Atomic int32_t *word)
{
	return atomic_load_explicit(word, memory_order_relaxed);
}

void kvw_pace_sent(struct kvw_pace *pace, int64_t work_ns, int64_t now_ns)
{
	atomic_fetch_add_explicit(&pace->undone_ns, work_ns, memory_order_relaxed);
	atomic_fetch_add_explicit(&pace->unanswered, 1, memory_order_relaxed);
	if (work_ns > 0 && atomic_fetch_add_explicit(&pace->shown, 1, memory_order_relaxed) <= 0)
		atomic_store_explicit(&pace->since_ns, now_ns, memory_order_relaxed);
}

/* Ends the wait for a first token, which has come or will not come. */
static void leave_shown(struct kvw_pace *pace, int64_t work_ns)
{
	atomic_fetch_sub_explicit(&pace->undone_ns, work_ns, memory_order_relaxed);
	atomic_fetch_sub_explicit(&pace->shown, 1, memory_order_relaxed);
}

void kvw_pace_first_token(struct kvw_pace *pace, int64_t work_ns, int64_t now_ns)
{
	atomic_fetch_sub_explicit(&pace->unanswered, 1, memory_order_relaxed);
	if (work_ns > 0) {
		leave_shown(pace, work_ns);
		atomic_store_explicit(&pace->since_ns, now_ns, memory_order_relaxed);
	}
}

void kvw_pace_follows(struct kvw_pace *pace)
{
	/* The first stream after none: the balance of earlier streams is discarded. */
	if (atomic_fetch_add_explicit(&pace->answering, 1, memory_order_relaxed) <= 0)
		atomic_store_explicit(
			&pace->behind_ns, -KVW_PACE_CREDIT_NS, memory_order_relaxed);
}

void kvw_pace_ended(struct kvw_pace *pace, int64_t work_ns, bool answered, bool follows)
{
	if (answered) {
		if (follows)
			atomic_fetch_sub_explicit(&pace->answering, 1, memory_order_relaxed);
		return;
	}
	atomic_fetch_sub_explicit(&pace->unanswered, 1, memory_order_relaxed);
	if (work_ns > 0)
		leave_shown(pace, work_ns);
}

void kvw_pace_set_peers(struct kvw_pace *pace, int64_t work_ns, int64_t own_ns, int64_t now_ns)
{
	float share =
		work_ns > 0 ? (float)((double)work_ns / ((double)work_ns + (double)own_ns)) : 0;

	atomic_store_explicit(&pace->peers, work_ns > 0, memory_order_relaxed);
	atomic_store_explicit(&pace->peers_until_ns, now_ns + work_ns, memory_order_relaxed);
	atomic_store_explicit(&pace->peers_share, share, memory_order_relaxed);
}

double kvw_pace_own_share(const struct kvw_pace *pace)
{
	return count_of(&pace->unanswered) > 0
		       ? 1 - (double)atomic_load_explicit(&pace->peers_share, memory_order_relaxed)
		       : count_of(&pace->peers) > 0 ? 0 : 1;
}

/* Returns how much of the other routers' prefill on the worker is left. */
static double peers_undone(const struct kvw_pace *pace, int64_t now_ns)
{
	int64_t until_ns = get(&pace->peers_until_ns);

	return count_of(&pace->peers) > 0 && until_ns > now_ns ? (double)(until_ns - now_ns) : 0;
}

int64_t kvw_pace_undone_ns(const struct kvw_pace *pace, double rate, int64_t now_ns)
{
	int32_t requests = count_of(&pace->shown);
	double undone = (double)get(&pace->undone_ns) / rate;
	double since = (double)(now_ns - get(&pace->since_ns));
	double theirs = peers_undone(pace, now_ns) / rate;
	double one = 0;

	if (requests <= 0 || undone <= 0)
		return (int64_t)theirs;
	/* An unanswered request takes at least its share of the undone work. */
	one = undone / requests;
	return (int64_t)(undone - (since < one ? since : one) + theirs);
}

void kvw_pace_token(struct kvw_pace *pace, int64_t gap_ns, int64_t allowed_ns, int64_t now_ns)
{
	int32_t streams = count_of(&pace->answering);
	int64_t by = (gap_ns - allowed_ns) / (streams > 1 ? streams : 1);
	int64_t was = get(&pace->behind_ns);
	int64_t now = 0;

	do {
		now = was + by;
		now = now < -KVW_PACE_CREDIT_NS ? -KVW_PACE_CREDIT_NS : now;
		now = now > KVW_PACE_DEBT_NS ? KVW_PACE_DEBT_NS : now;
	} while (!atomic_compare_exchange_weak_explicit(
		&pace->behind_ns, &was, now, memory_order_relaxed, memory_order_relaxed));
	atomic_store_explicit(&pace->moved_ns, now_ns, memory_order_relaxed);
}

/* Returns how late the worker's answers are; <= 0: not late. */
static int64_t behind(const struct kvw_pace *pace, int64_t now_ns)
{
	if (count_of(&pace->answering) <= 0 || now_ns - get(&pace->moved_ns) > KVW_PACE_STALE_NS)
		return 0;
	return get(&pace->behind_ns);
}

struct kvw_pace_seen kvw_pace_see(const struct kvw_pace *pace, int64_t now_ns)
{
	int64_t behind_ns = behind(pace, now_ns);
	bool computes = count_of(&pace->unanswered) > 0 || count_of(&pace->peers) > 0;

	return (struct kvw_pace_seen){
		/* Without prefill, tokens come about twice as fast as promised, so that half the
		 * time is enough to catch up. */
		.late_ns = behind_ns > 0 ? behind_ns / 2 : 0,
		.computes = computes,
		.busy = computes || behind_ns > 0,
	};
}

int64_t kvw_pace_wait_ns(
	const struct kvw_pace *pace, int64_t queue_ns, int64_t ahead_ns, int64_t now_ns)
{
	struct kvw_pace_seen seen = kvw_pace_see(pace, now_ns);

	return kvw_pace_seen_wait_ns(&seen, queue_ns, ahead_ns);
}

bool kvw_pace_busy(const struct kvw_pace *pace, int64_t now_ns)
{
	return count_of(&pace->unanswered) > 0 || count_of(&pace->peers) > 0 ||
	       behind(pace, now_ns) > 0;
}
