/*
 * owner.c - sends a request about an object to the worker that keeps it (whose.h).
 */
#include "proxy/step.h"

#include "proxy/forward.h"
#include "proxy/loop.h"

static bool pick_owner(struct kvw_exchange *x, const struct kvw_candidates *set)
{
	size_t pos;

	if (!kvw_request_has_owner(x, set->items, set->count, &pos))
		return false;
	x->attempt.decision = (struct kvw_decision){
		.pos = pos, .reason = KVW_REASON_OWNER, .worker_id = set->items[pos].id};
	return true;
}

static enum kvw_stepped owner_run(struct kvw_exchange *x, struct kvw_way *way)
{
	return pick_owner(x, &way->set) ? KVW_STEP_CHOSEN : KVW_STEP_ON;
}

const struct kvw_step kvw_step_owner = {
	.name = "owner",
	.chooses = true,
	.run = owner_run,
};
