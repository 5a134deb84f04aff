/*
 * trial.c - sends one request to an ejected worker whose time is over.
 *
 * The request goes there at any cost, provided that it could go elsewhere if the worker is still
 * broken.
 */
#include "proxy/step.h"

#include "proxy/loop.h"

static bool pick_trial(struct kvw_exchange *x, const struct kvw_candidates *set)
{
	struct kvw_loop *loop = x->loop;

	if (x->tried.attempts > 0 || !x->whole || !x->path.repeatable ||
		!kvw_exchange_computes(x) || !kvw_ejections_any(&loop->fleet->ejections))
		return false;
	for (size_t i = 0; i < set->count; i++) {
		uint32_t id = set->items[i].id;
		struct kvw_worker *worker = loop->fleet->workers[id];

		if (!set->items[i].usable || !kvw_fleet_picked(loop->fleet, worker, loop->now_ns))
			continue;
		x->attempt.trial = true;
		x->attempt.decision = (struct kvw_decision){
			.pos = i, .reason = KVW_REASON_TRIAL, .worker_id = id};
		return true;
	}
	return false;
}

static enum kvw_stepped trial_run(struct kvw_exchange *x, struct kvw_way *way)
{
	return pick_trial(x, &way->set) ? KVW_STEP_CHOSEN : KVW_STEP_ON;
}

static bool trial_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)loop;
	return config->retry_attempts > 0;
}

const struct kvw_step kvw_step_trial = {
	.name = "trial",
	.acts = true,
	.chooses = true,
	.needed = trial_needed,
	.run = trial_run,
};
