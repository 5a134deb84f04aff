/* predicted.c - counts predicted times to first token. */
#include "proxy/predicted.h"

#include "proxy/loop.h"

/* Returns how long the first token may take: by the promise to the request, or, where there is
 * none, by what the fleet is to be sized for; 0: nothing says so. */
static int64_t promised_ns(
	const struct kvw_exchange *x, struct kvw_promise promise, uint64_t tokens)
{
	if (promise.ttft_ns == 0 && promise.ttft_per_1k_ns == 0)
		promise = (struct kvw_promise){
			.ttft_ns = x->config->scale_ttft_ms * KVW_NS_PER_MS,
			.ttft_per_1k_ns = x->config->scale_ttft_per_1k_ms * KVW_NS_PER_MS};
	return kvw_promise_first_ns(&promise, tokens);
}

static void count(struct kvw_exchange *x, uint8_t role, int64_t promised,
	struct kvw_scale_prediction prediction)
{
	prediction.ns[KVW_SCALE_PROMISED] = promised;
	kvw_metrics_predicted(
		x->loop->metrics, x->model == NULL ? 0 : x->model->index + 1, role, &prediction);
}

void kvw_predicted_held(struct kvw_exchange *x)
{
	const struct kvw_entrant *e = &x->admission.entrant;
	uint8_t role = x->loop->fleet->workers[e->wait.worker]->config.role;
	struct kvw_scale_prediction prediction;

	if (x->admission.predicted)
		return;
	x->admission.predicted = true;
	prediction = kvw_gate_predict(
		x->admission.gate, e, x->loop->fleet->loops, x->loop->now_ns);
	if (role == KVW_ROLE_DECODE)
		prediction.ns[KVW_SCALE_PREFILL] = 0;
	count(x, role, promised_ns(x, e->promise, e->tokens), prediction);
}

/* Returns the prediction of a decision of the strategy, which no gate has corrected. */
static struct kvw_scale_prediction of(const struct kvw_decision *decision)
{
	return (struct kvw_scale_prediction){{[KVW_SCALE_QUEUE] = decision->queue_ns,
		[KVW_SCALE_PREFILL] = decision->prefill_ns}};
}

void kvw_predicted_sent(struct kvw_exchange *x, struct kvw_promise promise)
{
	const struct kvw_decision *decision = &x->attempt.decision;
	const struct kvw_entrant *e = &x->admission.entrant;
	int64_t promised = promised_ns(x, promise, decision->prompt_tokens);

	/* Strategies that read no prompt predict nothing. */
	if (x->tried.attempts > 1 || decision->prompt_tokens == 0 || !kvw_exchange_computes(x))
		return;
	if (x->pd != NULL && x->pd->state == KVW_PD_PLANNED)
		count(x, KVW_ROLE_PREFILL, promised, of(&x->pd->decision));
	if (!x->admission.predicted)
		count(x, x->attempt.worker->config.role, promised,
			e->sent ? kvw_gate_predicted(e) : of(decision));
	x->admission.predicted = true;
}
