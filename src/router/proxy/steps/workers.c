/*
 * workers.c - which workers could have it: its model's, of its group, that it has not tried.
 */
#include "proxy/step.h"

#include "proxy/forward.h"
#include "proxy/lacking.h"
#include "proxy/loop.h"

static enum kvw_stepped run(struct kvw_exchange *x, struct kvw_way *way)
{
	if (kvw_request_candidates(x, &way->set))
		return KVW_STEP_ON;
	return x->group_fault == KVW_GROUP_GOOD ? kvw_lacking_model(x) : KVW_STEP_AGAIN;
}

const struct kvw_step kvw_step_workers = {
	.name = "workers",
	.run = run,
};
