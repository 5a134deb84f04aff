/*
 * gate_sent.c - requests that a gate has sent: their pace and program, and learning from first
 * tokens.
 *
 * Two quantiles are learned: the ratio of the actual to the predicted time to first token (lag),
 * and for short prompts, whose time depends more on steps of the engine than on prefill, the time
 * beyond the prediction.
 */
#include "admission/gate_inside.h"

#define MORE_MOST_NS 5e9 /* largest delay of a first token beyond its prediction that is learned */
#define LAG_LEAST    0.3
#define LAG_MOST     3.0
/* the lag is learned from prompts that were expected to take at least this long */
#define LONG_NS      INT64_C(1000000000)

/* Marks the request's program as running. Context that a cache has lost counts as recomputed. */
static void program_sent(struct kvw_gate *gate, const struct kvw_entrant *e,
	const struct kvw_decision *decision, int64_t now_ns)
{
	uint64_t hit = hit_of(decision->hit_tokens);
	uint64_t missed = decision->prompt_tokens > hit ? decision->prompt_tokens - hit : 1;
	uint64_t held = hit > e->held_tokens ? hit : e->held_tokens;
	uint64_t lost = e->turn.context > held ? e->turn.context - held : 0;
	double share = lost < missed ? (double)lost / (double)missed : 1;

	kvw_programs_lost(gate->admission->programs,
		(int64_t)(share * (double)decision->prefill_ns), decision->prefill_ns);
	kvw_programs_sent(gate->admission->programs, &e->turn, decision->prompt_tokens, now_ns);
}

/* Sets the expected time to first token, corrected by the workers' rate and unanswered work. */
static void count_on(const struct kvw_gate *gate, struct kvw_entrant *e,
	const struct kvw_decision *decision, int64_t now_ns)
{
	double rate = kvw_admission_rate(gate->admission);

	e->counted_queue_ns = longer((int64_t)((double)decision->queue_ns / rate),
		kvw_pace_undone_ns(&gate->admission->paces[e->wait.worker], rate, now_ns));
	e->counted_ns = e->counted_queue_ns + (int64_t)(gate->lag * (double)decision->prefill_ns);
}

struct kvw_scale_prediction kvw_gate_predicted(const struct kvw_entrant *e)
{
	return (struct kvw_scale_prediction){{[KVW_SCALE_QUEUE] = e->counted_queue_ns,
		[KVW_SCALE_PREFILL] = e->counted_ns - e->counted_queue_ns}};
}

void kvw_gate_passed(struct kvw_gate *gate, struct kvw_entrant *e,
	const struct kvw_decision *decision, int64_t now_ns)
{
	kvw_gate_leave(gate, e);
	e->wait.worker = decision->worker_id;
	e->wait.work_ns = decision->prefill_ns;
	if (!e->offered)
		e->wait.value = 1;
	kvw_gate_offer(gate, e, now_ns);
	e->sent = true;
	e->answered = e->follows = false;
	e->sent_ns = now_ns;
	if ((double)(decision->queue_ns + decision->prefill_ns) >
		(double)gate->open_ahead_ns * kvw_admission_rate(gate->admission))
		gate->open_until_ns = 0;
	e->expected_ns = decision->queue_ns + decision->prefill_ns;
	count_on(gate, e, decision, now_ns);
	e->undone_ns = e->shows ? e->wait.work_ns : 0;
	kvw_pace_sent(&gate->admission->paces[e->wait.worker], e->undone_ns, now_ns);
	forget_outlook(gate, e->wait.worker);
	if (gate->admission->programs != NULL)
		program_sent(gate, e, decision, now_ns);
}

/* Moves the quantile that nine of ten are below. First tokens of short prompts are delayed by other
 * causes: steps of the engine, or its limit of running requests. */
static void learn_more(struct kvw_gate *gate, double more_ns)
{
	gate->more_ns *= more_ns > gate->more_ns ? 1 + 0.9 * 0.05 : 1 - 0.1 * 0.05;
	gate->more_ns = gate->more_ns < SAFE_NS        ? SAFE_NS
			: gate->more_ns > MORE_MOST_NS ? MORE_MOST_NS
						       : gate->more_ns;
}

/* Moves the quantile that four of five ratios are below. */
static void learn_lag(struct kvw_gate *gate, const struct kvw_entrant *e, int64_t now_ns)
{
	double ratio = 0;

	if (e->expected_ns < LONG_NS) {
		learn_more(
			gate, (double)(now_ns - e->sent_ns) - gate->lag * (double)e->expected_ns);
		return;
	}
	ratio = (double)(now_ns - e->sent_ns) / (double)e->expected_ns;
	gate->lag *= ratio > gate->lag ? 1 + 0.8 * 0.02 : 1 - 0.2 * 0.02;
	gate->lag = gate->lag < LAG_LEAST ? LAG_LEAST : gate->lag > LAG_MOST ? LAG_MOST : gate->lag;
}

void kvw_gate_first_token(
	struct kvw_gate *gate, struct kvw_entrant *e, bool stream, int64_t now_ns)
{
	if (!e->sent || e->answered)
		return;
	e->answered = true;
	e->stream = stream;
	atomic_fetch_add_explicit(
		&gate->admission->done_ns, e->wait.work_ns, memory_order_relaxed);
	if (stream)
		learn_lag(gate, e, now_ns);
	kvw_pace_first_token(&gate->admission->paces[e->wait.worker], e->undone_ns, now_ns);
	forget_outlook(gate, e->wait.worker);
}

void kvw_gate_follows(struct kvw_gate *gate, struct kvw_entrant *e)
{
	if (e->follows || !e->sent || !e->answered)
		return;
	e->follows = true;
	kvw_pace_follows(&gate->admission->paces[e->wait.worker]);
}

void kvw_gate_token(struct kvw_gate *gate, struct kvw_entrant *e, int64_t gap_ns, int64_t now_ns)
{
	kvw_gate_follows(gate, e);
	if (e->promise.tpot_ns <= 0)
		return;
	kvw_pace_token(&gate->admission->paces[e->wait.worker], gap_ns,
		(int64_t)(KVW_PACE_MARGIN * (double)e->promise.tpot_ns), now_ns);
	forget_outlook(gate, e->wait.worker);
}

void kvw_gate_ended(struct kvw_gate *gate, struct kvw_entrant *e, int64_t now_ns)
{
	if (!e->sent)
		return;
	e->sent = false;
	kvw_pace_ended(
		&gate->admission->paces[e->wait.worker], e->undone_ns, e->answered, e->follows);
	forget_outlook(gate, e->wait.worker);
	if (gate->admission->programs != NULL)
		kvw_programs_ended(gate->admission->programs, &e->turn, now_ns);
}
