/*
 * workers.c - finds the workers that could have the request: those of its model and group that it
 * has not tried.
 */
#include "proxy/step.h"

#include <stdio.h>

#include "admin/explanation.h"
#include "proxy/forward.h"
#include "proxy/lacking.h"
#include "proxy/loop.h"
#include "proxy/reply.h"

static enum kvw_stepped workers_run(struct kvw_exchange *x, struct kvw_way *way)
{
	if (kvw_request_candidates(x, &way->set))
		return KVW_STEP_ON;
	return x->division.fault == KVW_GROUP_GOOD ? kvw_lacking_model(x) : KVW_STEP_AGAIN;
}

/* In a dry run: notes the strategy's view of each worker, whichever step chooses later. */
static enum kvw_stepped workers_dry(struct kvw_exchange *x, struct kvw_way *way)
{
	const struct kvw_strategy_ops *ops = x->strategy->ops;
	struct kvw_cost *costs = x->loop->gates.costs;
	struct kvw_explanation *e = x->dry;
	enum kvw_stepped stepped = workers_run(x, way);
	char message[128];
	enum kvw_err err;

	if (stepped != KVW_STEP_ON)
		return stepped;
	if (ops->explain == NULL) {
		(void)snprintf(message, sizeof(message),
			"the strategy %s cannot explain its decisions", ops->name);
		kvw_reply_error(x, 501, message);
		return KVW_STEP_ANSWERED;
	}
	err = ops->explain(x->strategy, &x->route, &way->set, x->loop->now_ns, costs, &e->decision);
	if (err != KVW_OK && err != KVW_ENOWORKER) {
		kvw_reply_error(x, 503, "out of memory");
		return KVW_STEP_ANSWERED;
	}
	e->none = err == KVW_ENOWORKER;
	for (size_t i = 0; e->none && i < way->set.count; i++)
		costs[i] = (struct kvw_cost){.verdict = KVW_VERDICT_UNUSABLE};
	kvw_explanation_note(e, "%zu have its model", way->set.count);
	return KVW_STEP_ON;
}

const struct kvw_step kvw_step_workers = {
	.name = "workers",
	.run = workers_run,
	.dry = workers_dry,
};
