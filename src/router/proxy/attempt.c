/*
 * attempt.c - the end of an attempt. steps/lease.c begins an attempt, once a worker is chosen.
 */
#include "proxy/attempt.h"

#include "proxy/exchange.h"
#include "proxy/pd.h"
#include "proxy/understand.h"

void kvw_attempt_grade(struct kvw_exchange *x, enum kvw_grade grade, const char *why)
{
	struct kvw_attempt *a = &x->attempt;
	bool trial = a->trial;

	if (a->graded == KVW_GRADE_BAD && !trial)
		return;
	a->trial = false;
	if (a->graded == KVW_GRADE_GOOD && grade == KVW_GRADE_BAD)
		grade = KVW_GRADE_TURNED_BAD;
	a->graded = grade == KVW_GRADE_TURNED_BAD ? KVW_GRADE_BAD : grade;
	kvw_fleet_judge(x->loop->fleet, a->worker, grade, trial, why, x->loop->now_ns);
	kvw_trace_text(x->trace, x->loop->now_ns, KVW_TRACE_GRADE, grade, 0, why);
}

/* The predicted prefill time by the configured speed, where the strategy predicts none. */
static int64_t prefill_of(const struct kvw_exchange *x)
{
	double tokens = (double)x->measure.units * x->route.tokens_per_unit;

	if (x->attempt.decision.prefill_ns > 0)
		return x->attempt.decision.prefill_ns;
	return (int64_t)(tokens * 1e9 / x->config->routing_prefill_rate);
}

void kvw_attempt_await(struct kvw_exchange *x, bool awaited)
{
	struct kvw_attempt *a = &x->attempt;

	if (a->awaited == awaited || !kvw_exchange_computes(x))
		return;
	a->awaited = awaited;
	if (awaited)
		kvw_stall_wait(&a->worker->stall, prefill_of(x), x->loop->now_ns);
	else
		kvw_stall_left(&a->worker->stall);
}

bool kvw_attempt_pay_repeat(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;

	if (x->attempt.paid)
		return true;
	kvw_budget_pay(&loop->shared->repeats, loop->unpaid, x->config->retry_budget, loop->now_ns);
	loop->unpaid = 0;
	x->attempt.paid = kvw_budget_take(&loop->shared->repeats);
	if (!x->attempt.paid)
		kvw_metrics_add(loop->metrics, KVW_COUNT_RETRIES_REFUSED, 1);
	return x->attempt.paid;
}

void kvw_attempt_puts_to_sleep(struct kvw_exchange *x)
{
	struct kvw_attempt *a = &x->attempt;

	if (!x->path.sleeps || !kvw_slice_equal(x->method, KVW_SLICE("POST")) ||
		kvw_worker_sleeps(a->worker))
		return;
	a->puts_to_sleep = true;
	kvw_fleet_puts_to_sleep(x->loop->fleet, a->worker);
}

/* After no answer, or one of 5xx, the worker may sleep nevertheless; its metrics will show that.
 * After a wake-up of parts, probes will show whether the worker is awake. */
void kvw_attempt_note_sleep(struct kvw_exchange *x)
{
	struct kvw_attempt *a = &x->attempt;
	bool refused = x->status == 0 ? a->written == 0 : x->status >= 300 && x->status < 500;

	if (a->puts_to_sleep)
		kvw_fleet_said_sleep(x->loop->fleet, a->worker, !refused, x->loop->now_ns);
	else if (x->path.wakes && kvw_slice_equal(x->method, KVW_SLICE("POST")) &&
		 x->status >= 200 && x->status < 300 && !kvw_target_wakes_parts(x->target))
		kvw_fleet_said_sleep(x->loop->fleet, a->worker, false, x->loop->now_ns);
	a->puts_to_sleep = false;
}

/* The request, scanned once more, if its worker computed nothing for it: the worker received
 * nothing, or failed or answered an error before any token. Else NULL: an engine may compute on
 * after its client has left. */
static const struct kvw_route_request *unserved(struct kvw_exchange *x, bool completed)
{
	const struct kvw_attempt *a = &x->attempt;
	bool failed = a->failure.why != NULL || completed || x->status >= 400;

	if (!a->picked || a->decision.chains == 0 || x->first_token_ns != 0 ||
		(a->written > 0 && !failed))
		return NULL;
	return kvw_request_read_again(x);
}

void kvw_attempt_end(struct kvw_exchange *x, bool completed)
{
	struct kvw_attempt *a = &x->attempt;
	struct kvw_loop *loop = x->loop;
	struct kvw_lease lease = a->lease;

	if (a->puts_to_sleep)
		kvw_attempt_note_sleep(x);
	kvw_trace_attempt_end(x->trace, loop->now_ns);
	if (a->link != NULL)
		kvw_link_close(a->link);
	a->link = NULL;
	if (a->decoding)
		kvw_metrics_decoding(loop->metrics, a->worker->id, -1);
	a->decoding = false;
	kvw_attempt_await(x, false);
	if (a->trial)
		kvw_attempt_grade(x, KVW_GRADE_NONE, "");
	kvw_lease_release(&a->lease, loop->now_ns);
	kvw_gates_ended(x);
	if (a->picked && x->strategy->ops->done != NULL) {
		struct kvw_outcome outcome = {
			.status = x->status,
			.first_token = x->first_token_ns != 0,
			.completed = completed,
			.streamed = x->event_stream && !kvw_pd_has_leg(x),
			.prompt_known = x->usage.prompt_known,
			.cached_known = x->usage.prompt_known && x->usage.cached_known &&
					!kvw_pd_hands(x),
			.prompt_tokens = x->usage.prompt_tokens,
			.cached_tokens = x->usage.cached_tokens,
			.first_token_ns =
				x->first_token_ns != 0 ? x->first_token_ns - a->picked_ns : 0,
			.ahead_ns = lease.ahead_ns,
			.behind_ns = lease.behind_ns,
			.served_ns = lease.served_ns,
			.unserved = unserved(x, completed),
		};

		x->strategy->ops->done(x->strategy, &a->decision, &outcome, loop->now_ns);
	}
	a->picked = false;
	a->failure = (struct kvw_failure){0};
	kvw_block_put(&loop->blocks, a->head);
	a->head = NULL;
	kvw_block_put(&loop->blocks, a->partial);
	a->partial = NULL;
	kvw_held_drop(&a->held, &loop->blocks, loop->shared->memory);
	kvw_pd_attempt_ended(x);
}
