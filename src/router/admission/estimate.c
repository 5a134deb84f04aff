/* estimate.c - predicts the fate of a request that would arrive now, without sending it. */
#include "admission/estimate.h"

/* Longest age of a published limit on prices, which a gate computes only while requests wait. */
#define FRESH_NS INT64_C(2000000000)

/* Returns how long the workers need for the work that waits in all gates. */
static int64_t queue_ns(const struct kvw_admission *admission, size_t workers)
{
	int64_t waiting = atomic_load_explicit(&admission->waiting_ns, memory_order_relaxed) +
			  atomic_load_explicit(&admission->peers_waiting_ns, memory_order_relaxed);

	if (waiting <= 0)
		return 0;
	return (int64_t)((double)waiting /
			 (kvw_admission_rate(admission) * (double)(workers > 0 ? workers : 1)));
}

/* Judges a request that would wait for out->wait_ns. */
static void judge_wait(
	const struct kvw_entrant *e, bool may_not_wait, int64_t now_ns, struct kvw_estimate *out)
{
	const struct kvw_waiter *w = &e->wait;
	int64_t sent_ns = now_ns + out->wait_ns;

	if (sent_ns > w->start_ns && w->promised && w->late == KVW_LATE_SENT && !may_not_wait) {
		/* At that time the request is sent, even to a busy worker. */
		out->wait_ns = w->start_ns > now_ns ? w->start_ns - now_ns : 0;
		sent_ns = now_ns + out->wait_ns;
	}
	out->verdict = KVW_WOULD_BE_REFUSED;
	if (may_not_wait)
		out->refusal = KVW_REFUSED_QUEUE_FULL;
	else if (sent_ns > w->start_ns && w->promised && w->late == KVW_LATE_NEVER &&
		 w->start_ns < w->until_ns)
		out->refusal = KVW_REFUSED_SERVICE_LEVEL;
	else if (sent_ns >= w->until_ns && (w->promised || !kvw_gate_sends_late(e, w->until_ns)))
		out->refusal = KVW_REFUSED_DEADLINE;
	else
		out->verdict = KVW_WOULD_WAIT;
	if (out->verdict == KVW_WOULD_WAIT && sent_ns > w->until_ns)
		out->wait_ns = w->until_ns - now_ns;
}

/* Initializes a gate with the numbers that the loops' gates have published. */
static void init_like_others(struct kvw_gate *gate, struct kvw_admission *admission,
	struct kvw_outlooks *outlooks, int64_t now_ns)
{
	int64_t planned_ns = atomic_load_explicit(&admission->planned_ns, memory_order_relaxed);
	float lag = atomic_load_explicit(&admission->lag, memory_order_relaxed);

	kvw_gate_init(gate, admission, outlooks);
	gate->mean_ns = atomic_load_explicit(&admission->mean_ns, memory_order_relaxed);
	if (lag > 0)
		gate->lag = lag;
	for (size_t class = 0;
		class < KVW_CLASSES && planned_ns > 0 && now_ns - planned_ns < FRESH_NS; class++)
		gate->price.limit[class] =
			atomic_load_explicit(&admission->limits[class], memory_order_relaxed);
}

/* Returns whether the request's price is too high for it to be sent before its wait ends. */
static bool is_too_dear(const struct kvw_gate *gate, const struct kvw_waiter *w)
{
	return w->promised && kvw_price_too_high(&gate->price, w) &&
	       (gate->price.limit[w->class] > 0 || !gate->any_idle);
}

struct kvw_estimate kvw_estimate(struct kvw_admission *admission,
	const struct kvw_estimate_ask *ask, const struct kvw_candidates *set,
	const struct kvw_cost *costs, const struct kvw_decision *wish, int64_t now_ns)
{
	struct kvw_estimate out = {.verdict = KVW_WOULD_GO};
	struct kvw_entrant e = {.promise = ask->promise,
		.turn = ask->turn,
		.tokens = ask->tokens,
		.deadline_ns = ask->deadline_ns > 0 ? now_ns + ask->deadline_ns : 0,
		.wait = {.came_ns = now_ns, .value = 1, .class = ask->class}};
	struct kvw_outlooks outlooks = {0};
	struct kvw_gate gate;
	int64_t others_ns = 0;

	init_like_others(&gate, admission, &outlooks, now_ns);
	gate.terms = ask->terms;
	if (!kvw_gate_judge(&gate, &e, set, costs, wish, now_ns))
		return out;
	others_ns = queue_ns(admission, gate.usable);
	if (others_ns == 0 && e.wait_ns == 0)
		return out;
	out.why = others_ns > 0 ? KVW_WHY_OTHERS : KVW_WHY_WORKERS;
	out.wait_ns = e.wait_ns + others_ns;
	if (kvw_gate_crowds(&gate, &e)) {
		out.why = KVW_WHY_PROGRAMS;
		out.wait_ns = out.wait_ns > KVW_CROWDED_NS ? out.wait_ns : KVW_CROWDED_NS;
	}
	if (is_too_dear(&gate, &e.wait)) {
		out.why = KVW_WHY_PRICE;
		out.wait_ns = e.wait.until_ns - now_ns;
	}
	judge_wait(
		&e, ask->impatient || kvw_gate_is_full(ask->waiting, 1, ask->most), now_ns, &out);
	return out;
}
