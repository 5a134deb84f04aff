/*
 * explain_admission.c - would the request wait, or be refused? An estimate (admission/estimate.h).
 */
#include "admin/explanation.h"
#include "admission/estimate.h"
#include "base/clock.h"
#include "routing/choice.h"

static const char *reason_of(const struct kvw_estimate *estimate)
{
	static const char *const refusals[KVW_REFUSED_COUNT] = {
		[KVW_REFUSED_SERVICE_LEVEL] = "service_level",
		[KVW_REFUSED_DEADLINE] = "deadline",
		[KVW_REFUSED_QUEUE_FULL] = "queue_full",
	};

	static const char *const whys[] = {
		[KVW_WHY_WORKERS] = "busy",
		[KVW_WHY_OTHERS] = "behind_others",
		[KVW_WHY_PROGRAMS] = "programs",
		[KVW_WHY_PRICE] = "price",
	};

	if (estimate->verdict == KVW_WOULD_BE_REFUSED)
		return refusals[estimate->refusal];
	return estimate->verdict == KVW_WOULD_GO ? "free" : whys[estimate->why];
}

/* Those that name their worker, or for which no engine computes. */
static bool is_held(const struct kvw_explanation *e)
{
	return e->whole && e->path.prompt && e->path.api != KVW_API_TOKENIZE &&
	       e->path.api != KVW_API_COUNT_TOKENS && e->query->pin.len == 0 &&
	       e->decision.reason != KVW_REASON_OWNER;
}

/* A reload since the request came may have left fewer. */
static size_t class_of(const struct kvw_explanation *e)
{
	size_t count = e->source->config->admission_classes.count;
	size_t asked = e->query->class_index;

	return asked < count ? asked : count > 0 ? count - 1 : 0;
}

static void estimate(struct kvw_explanation *e, const struct kvw_service_level_ms *ms, int64_t now_ns)
{
	const struct kvw_config *config = e->source->config;
	struct kvw_programs *programs = e->source->admission->programs;
	struct kvw_estimate_ask ask = {
		.terms = {.max_wait_ns = config->admission_max_wait_ms * KVW_NS_PER_MS,
			.ahead_ns = config->admission_worker_queue_ms * KVW_NS_PER_MS},
		.promise = {ms->ttft * KVW_NS_PER_MS, ms->ttft_per_1k_tokens * KVW_NS_PER_MS,
			ms->tpot * KVW_NS_PER_MS},
		.tokens = kvw_request_tokens(&e->route),
		.deadline_ns = e->query->deadline_ns,
		.waiting = (uint64_t)(e->admission.waiting > 0 ? e->admission.waiting : 0),
		.most = (uint64_t)config->admission_max_queue,
		.class = (uint8_t)class_of(e),
		.impatient = e->query->impatient,
	};
	struct kvw_estimate found;

	if (programs != NULL)
		ask.turn = kvw_programs_find(programs, &e->route, e->query->program);
	found = kvw_estimate(e->source->admission, &ask, &e->set, e->costs, &e->decision, now_ns);
	e->admission.verdict = found.verdict == KVW_WOULD_GO     ? "admitted"
			       : found.verdict == KVW_WOULD_WAIT ? "would wait"
								 : "refused";
	e->admission.reason = reason_of(&found);
	e->admission.wait_ns = found.wait_ns;
}

void kvw_explanation_admission(struct kvw_explanation *e, int64_t now_ns)
{
	const struct kvw_config *config = e->source->config;
	struct kvw_service_level_ms ms;

	if (!config->admission_enabled || e->source->admission == NULL)
		return;
	e->admission.class =
		config->admission_classes.count > 0 ? config->admission_classes.items[class_of(e)] : NULL;
	kvw_config_promise(config, kvw_explanation_model(e).data, kvw_explanation_model(e).len, class_of(e), &ms);
	e->admission.promise = ms;
	e->admission.verdict = "admitted";
	e->admission.reason = "not_held";
	if (e->source->metrics != NULL)
		e->admission.waiting = kvw_metrics_gauge_sum(e->source->metrics, KVW_GAUGE_WAITING);
	if (is_held(e))
		estimate(e, &ms, now_ns);
}
