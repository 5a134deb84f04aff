/*
 * lease.c - begins an attempt at the chosen worker, which books the attempt's load on the worker.
 */
#include "proxy/step.h"

#include "proxy/admit.h"
#include "proxy/gates.h"
#include "proxy/loop.h"
#include "proxy/predicted.h"
#include "proxy/understand.h"

#define SEQUENCES_UNKNOWN (UINT32_C(1) << 16)

/* Returns how many sequences the engine runs for this request at most: one for each answer to each
 * prompt. */
static uint32_t sequences_of(const struct kvw_exchange *x)
{
	uint32_t choices = x->route.choices > 1 ? x->route.choices : 1;

	if (!kvw_exchange_computes(x))
		return 1;
	if (!x->scanned)
		return SEQUENCES_UNKNOWN;
	switch (x->route.api) {
	case KVW_API_RESPONSES:
	case KVW_API_MESSAGES:
		return choices;
	case KVW_API_CHAT: /* also for a batch of prompts */
		return x->route.chain_count > 1 ? x->route.chain_count * choices : choices;
	case KVW_API_COMPLETIONS:
	case KVW_API_EMBEDDINGS:
		if (x->route.content_known && x->route.chain_count < SEQUENCES_UNKNOWN / choices)
			return x->route.chain_count * choices;
		return SEQUENCES_UNKNOWN;
	default:
		return SEQUENCES_UNKNOWN;
	}
}

/* Returns the hash of the prefix that the worker is predicted to have: that of the chunk whose end
 * is nearest, since hits are counted in blocks of tokens. 0: none, or the prompt has no chunks. */
static uint64_t prefix_of(const struct kvw_route_request *route, uint64_t tokens)
{
	float units = route->tokens_per_unit > 0 ? (float)tokens / route->tokens_per_unit : 0;
	uint32_t count = route->chain_count > 0 ? route->chain_ends[0] : 0, at;

	if (tokens == 0 || count == 0)
		return 0;
	at = (uint32_t)(units / (float)route->chunks[0].end + 0.5F);
	return at == 0 ? 0 : route->chunks[(at < count ? at : count) - 1].hash;
}

static enum kvw_stepped lease_run(struct kvw_exchange *x, struct kvw_way *way)
{
	struct kvw_attempt *a = &x->attempt;
	struct kvw_loop *loop = x->loop;

	(void)way;
	a->decided = true;
	a->picked_ns = loop->now_ns;
	a->suspect = a->paid = x->said_all = false;
	a->graded = KVW_GRADE_NONE;
	a->opening = (struct kvw_opening){.line_ended = true};
	if (a->worker != NULL)
		kvw_links_unhold(&loop->links, a->worker);
	a->worker = loop->fleet->workers[a->decision.worker_id];
	kvw_links_hold(&loop->links, a->worker);
	kvw_trace_attempt(x->trace, loop->now_ns, a->worker->id, a->worker->use, &a->decision,
		x->trace == NULL ? 0 : prefix_of(&x->route, kvw_decision_cached(&a->decision)));
	if (x->tried.attempts++ == 0 && ++loop->unpaid == KVW_BUDGET_BATCH) {
		kvw_budget_pay(&loop->shared->repeats, loop->unpaid, x->config->retry_budget,
			loop->now_ns);
		loop->unpaid = 0;
	}
	if (!kvw_worker_is_up(a->worker))
		kvw_metrics_add(loop->metrics, KVW_COUNT_PANICS, 1);
	kvw_attempt_puts_to_sleep(x);
	a->trial = a->trial || (kvw_exchange_computes(x) &&
				       kvw_fleet_picked(loop->fleet, a->worker, loop->now_ns));
	kvw_lease_take(&a->lease, &a->worker->load, a->decision.prefill_ns, loop->now_ns);
	a->sent_inflight = kvw_load_inflight(&a->worker->load);
	a->lease.plain = !x->route.stream;
	kvw_lease_hold(&a->lease, a->decision.prompt_tokens);
	if (sequences_of(x) > 1)
		kvw_lease_widen(&a->lease, sequences_of(x) - 1);
	kvw_gates_picked(x);
	kvw_predicted_sent(x, kvw_admit_promise(x));
	if (loop->sources != NULL)
		kvw_request_report_pick(x);
	kvw_request_scan_release(x);
	kvw_exchange_response_state(x, KVW_RESPONSE_WAITING);
	return KVW_STEP_ON;
}

const struct kvw_step kvw_step_lease = {
	.name = "lease",
	.acts = true,
	.run = lease_run,
};
