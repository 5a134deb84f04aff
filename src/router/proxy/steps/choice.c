/*
 * choice.c - lets the strategy choose a worker.
 */
#include "proxy/step.h"

#include "admin/explanation.h"
#include "proxy/forward.h"
#include "proxy/lacking.h"
#include "proxy/loop.h"

static enum kvw_stepped choice_run(struct kvw_exchange *x, struct kvw_way *way)
{
	return kvw_request_pick(x, &way->set) == KVW_OK ? KVW_STEP_CHOSEN : kvw_lacking_choice(x);
}

static enum kvw_stepped choice_dry(struct kvw_exchange *x, struct kvw_way *way)
{
	(void)way;
	if (x->dry->none)
		return kvw_lacking_choice(x);
	x->attempt.decision = x->dry->decision;
	kvw_explanation_note(x->dry, "%s", kvw_reason_why(x->dry->decision.reason));
	return KVW_STEP_CHOSEN;
}

const struct kvw_step kvw_step_choice = {
	.name = "choice",
	.chooses = true,
	.run = choice_run,
	.dry = choice_dry,
};
