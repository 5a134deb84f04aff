/*
 * admission.c - may it be sent now, and to any of its workers or to one? (admit.h)
 */
#include "proxy/step.h"

#include "proxy/admit.h"
#include "proxy/forward.h"
#include "proxy/lacking.h"
#include "proxy/loop.h"

/* One that is to be sent to this worker alone. Its reason is what the strategy said of the whole set. */
static enum kvw_err pick_admitted(struct kvw_exchange *x, struct kvw_candidates *set)
{
	struct kvw_decision *decision = &x->attempt.decision;
	uint32_t id = x->entrant.wait.worker;
	enum kvw_err err;

	x->loop->candidates.version = set->version = 0; /* they are refilled next time */
	for (size_t i = 0; i < x->loop->candidates.count; i++)
		x->loop->candidates.items[i].usable &= x->loop->candidates.items[i].id == id;
	err = kvw_request_pick(x, set);
	if (err != KVW_OK || decision->reason != KVW_REASON_ONLY)
		return err;
	if (id == x->wished)
		decision->reason = x->wish;
	else if (decision->hit_tokens[KVW_TIER_DEVICE] > 0)
		decision->reason = KVW_REASON_PREFIX;
	else
		decision->reason = KVW_REASON_LOAD;
	return KVW_OK;
}

static enum kvw_stepped run(struct kvw_exchange *x, struct kvw_way *way)
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

static bool needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)loop;
	return config->admission_enabled;
}

const struct kvw_step kvw_step_admission = {
	.name = "admission",
	.chooses = true,
	.needed = needed,
	.run = run,
};
