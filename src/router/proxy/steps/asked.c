/*
 * asked.c - picks the next worker, where kvway asks one after the other for an object that one of
 * them keeps (asked.h).
 */
#include "proxy/step.h"

#include "proxy/asked.h"
#include "proxy/loop.h"

static enum kvw_stepped asked_run(struct kvw_exchange *x, struct kvw_way *way)
{
	return kvw_asked_pick(x, &way->set) ? KVW_STEP_CHOSEN : KVW_STEP_ON;
}

const struct kvw_step kvw_step_asked = {
	.name = "asked",
	.chooses = true,
	.run = asked_run,
};
