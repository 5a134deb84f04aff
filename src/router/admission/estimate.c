/* estimate.c - see estimate.h. */
#include "admission/estimate.h"

/* How long the workers need for what waits in all gates. */
static int64_t queue_ns(const struct kvw_admission *admission, size_t workers)
{
	int64_t waiting = atomic_load_explicit(&admission->waiting_ns, memory_order_relaxed);

	if (waiting <= 0)
		return 0;
	return (int64_t)((double)waiting /
			 (kvw_admission_rate(admission) * (double)(workers > 0 ? workers : 1)));
}

/* Of one that would wait so long. */
static void judge_wait(const struct kvw_waiter *w, bool impatient, int64_t now_ns, struct kvw_estimate *out)
{
	int64_t sent_ns = now_ns + out->wait_ns;

	if (sent_ns > w->start_ns && w->promised && w->late == KVW_LATE_SENT && !impatient) {
		/* No later than that, to a worker that has more to do. */
		out->wait_ns = w->start_ns > now_ns ? w->start_ns - now_ns : 0;
		sent_ns = now_ns + out->wait_ns;
	}
	out->verdict = KVW_WOULD_BE_REFUSED;
	if (impatient)
		out->refusal = KVW_REFUSED_QUEUE_FULL;
	else if (sent_ns > w->start_ns && w->promised && w->start_ns < w->until_ns)
		out->refusal = KVW_REFUSED_SERVICE_LEVEL;
	else if (sent_ns >= w->until_ns)
		out->refusal = KVW_REFUSED_DEADLINE;
	else
		out->verdict = KVW_WOULD_WAIT;
}

struct kvw_estimate kvw_estimate(struct kvw_admission *admission, const struct kvw_estimate_ask *ask,
	const struct kvw_candidates *set, const struct kvw_cost *costs,
	const struct kvw_decision *wish, int64_t now_ns)
{
	struct kvw_estimate out = {.verdict = KVW_WOULD_GO};
	struct kvw_entrant e = {.promise = ask->promise,
		.tokens = ask->tokens,
		.wait = {.came_ns = now_ns, .value = 1, .class = ask->class}};
	struct kvw_gate gate; /* of its own: nothing waits in it */
	int64_t others_ns = 0;

	kvw_gate_init(&gate, admission);
	gate.terms = ask->terms;
	if (!kvw_gate_judge(&gate, &e, set, costs, wish, now_ns))
		return out;
	others_ns = queue_ns(admission, gate.usable);
	if (others_ns == 0 && e.wait_ns == 0)
		return out;
	out.behind_others = others_ns > 0;
	out.wait_ns = e.wait_ns + others_ns;
	judge_wait(&e.wait, ask->impatient, now_ns, &out);
	return out;
}
