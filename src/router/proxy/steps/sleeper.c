/*
 * sleeper.c - sends a request that wakes an engine to a worker that sleeps.
 */
#include "proxy/step.h"

#include "proxy/loop.h"

static bool pick_sleeper(struct kvw_exchange *x, const struct kvw_candidates *set)
{
	for (size_t i = 0; x->path.wakes && i < set->count; i++) {
		uint32_t id = set->items[i].id;

		if (!kvw_worker_sleeps(x->loop->fleet->workers[id]))
			continue;
		x->attempt.decision = (struct kvw_decision){
			.pos = i, .reason = KVW_REASON_OWNER, .worker_id = id};
		return true;
	}
	return false;
}

static enum kvw_stepped sleeper_run(struct kvw_exchange *x, struct kvw_way *way)
{
	return pick_sleeper(x, &way->set) ? KVW_STEP_CHOSEN : KVW_STEP_ON;
}

static bool sleeper_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)loop;
	return config->expose_engine_control;
}

const struct kvw_step kvw_step_sleeper = {
	.name = "sleeper",
	.chooses = true,
	.needed = sleeper_needed,
	.run = sleeper_run,
};
