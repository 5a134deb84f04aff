/*
 * choice.c - the strategy chooses.
 */
#include "proxy/step.h"

#include "proxy/forward.h"
#include "proxy/lacking.h"
#include "proxy/loop.h"

static enum kvw_stepped run(struct kvw_exchange *x, struct kvw_way *way)
{
	return kvw_request_pick(x, &way->set) == KVW_OK ? KVW_STEP_CHOSEN : kvw_lacking_choice(x);
}

const struct kvw_step kvw_step_choice = {
	.name = "choice",
	.chooses = true,
	.run = run,
};
