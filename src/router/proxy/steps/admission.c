/*
 * admission.c - decides whether the request may be sent now, and to which worker (admit.h).
 */
#include "proxy/step.h"

#include "admin/explanation.h"
#include "admission/estimate.h"
#include "proxy/admit.h"
#include "proxy/forward.h"
#include "proxy/lacking.h"
#include "proxy/loop.h"
#include "proxy/pd.h"

/* Lets the strategy pick for a request that may go to this worker alone. The reason stays the one
 * that the strategy had for the whole set, and what the decision knew is limited by what it knew of
 * that set. */
static enum kvw_err pick_admitted(struct kvw_exchange *x, struct kvw_candidates *set)
{
	struct kvw_decision *decision = &x->attempt.decision;
	uint32_t id = x->admission.entrant.wait.worker;
	bool strays = kvw_pd_strays(set);
	enum kvw_err err;

	x->loop->candidates.version = set->version = 0; /* the next read fills them again */
	for (size_t i = 0; i < x->loop->candidates.count; i++)
		x->loop->candidates.items[i].usable &= x->loop->candidates.items[i].id == id;
	err = kvw_request_pick(x, set);
	if (err == KVW_OK && decision->knowledge == KVW_KNOWS_ALL &&
		x->admission.knowledge > KVW_KNOWS_ALL)
		decision->knowledge = KVW_KNOWS_OTHERS;
	if (err != KVW_OK || decision->reason != KVW_REASON_ONLY)
		return err;
	if (strays && set->items[decision->pos].role == KVW_ROLE_PREFILL)
		decision->reason = KVW_REASON_PREFILLER;
	else if (id == x->admission.wished)
		decision->reason = x->admission.wish;
	else if (decision->hit_tokens[KVW_TIER_DEVICE] > 0)
		decision->reason = KVW_REASON_PREFIX;
	else
		decision->reason = KVW_REASON_LOAD;
	return KVW_OK;
}

static enum kvw_stepped admission_run(struct kvw_exchange *x, struct kvw_way *way)
{
	enum kvw_admitted admitted = kvw_admit(x, &way->set);

	if (admitted == KVW_ADMIT_NOT_NOW)
		return x->wait.kind != NULL ? KVW_STEP_WAITS : KVW_STEP_ANSWERED;
	if (admitted == KVW_ADMIT_ANY)
		return KVW_STEP_ON;
	if (pick_admitted(x, &way->set) == KVW_OK)
		return KVW_STEP_CHOSEN;
	return kvw_request_candidates(x, &way->set) ? KVW_STEP_ON : kvw_lacking_choice(x);
}

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

/* In a dry run: notes an estimate (admission/estimate.h), since the real worker and wait are known
 * only when the request comes. */
static enum kvw_stepped admission_dry(struct kvw_exchange *x, struct kvw_way *way)
{
	struct kvw_explanation *e = x->dry;
	struct kvw_estimate_ask ask = {
		.terms = kvw_admit_terms(x),
		.promise = x->admission.entrant.promise,
		.turn = x->admission.entrant.turn,
		.tokens = x->admission.entrant.tokens,
		.deadline_ns = x->admission.entrant.deadline_ns > 0
				       ? x->admission.entrant.deadline_ns - x->start_ns
				       : 0,
		.waiting = (uint64_t)(e->admission.waiting > 0 ? e->admission.waiting : 0),
		.most = (uint64_t)x->config->admission_max_queue,
		.class = x->admission.entrant.wait.class,
		.impatient = kvw_admit_impatient(x),
	};
	struct kvw_estimate found;

	if (!kvw_gates_want(x) || e->none)
		return KVW_STEP_ON;
	kvw_pd_price(x, &way->set, &e->decision, x->loop->gates.costs);
	found = kvw_estimate(x->loop->shared->admission, &ask, &way->set, x->loop->gates.costs,
		&e->decision, x->loop->now_ns);
	e->admission.verdict = found.verdict == KVW_WOULD_GO     ? "admitted"
			       : found.verdict == KVW_WOULD_WAIT ? "would wait"
								 : "refused";
	e->admission.reason = reason_of(&found);
	e->admission.wait_ns = found.wait_ns;
	kvw_explanation_note(e, "%s: %s", e->admission.verdict, e->admission.reason);
	return KVW_STEP_ON;
}

static bool admission_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)loop;
	return config->admission_enabled;
}

const struct kvw_step kvw_step_admission = {
	.name = "admission",
	.chooses = true,
	.needed = admission_needed,
	.run = admission_run,
	.dry = admission_dry,
};
