/*
 * promise.c - notes the promise of the request's service level and its arrival, also for requests
 * that never wait.
 */
#include "proxy/step.h"

#include "admin/explanation.h"
#include "proxy/admit.h"
#include "proxy/groups.h"
#include "proxy/loop.h"

static enum kvw_stepped promise_run(struct kvw_exchange *x, struct kvw_way *way)
{
	(void)way;
	kvw_admit_enter(x);
	return KVW_STEP_ON;
}

static enum kvw_stepped promise_dry(struct kvw_exchange *x, struct kvw_way *way)
{
	const struct kvw_strings *classes = &x->config->admission_classes;
	struct kvw_explanation *e = x->dry;
	size_t class = kvw_admit_class(x);

	(void)way;
	kvw_admit_enter(x);
	e->admission.class = classes->count > 0 ? classes->items[class] : NULL;
	kvw_config_promise(x->config, kvw_groups_model(x).data, kvw_groups_model(x).len, class,
		&e->admission.promise);
	e->admission.verdict = "admitted";
	e->admission.reason = "not_held";
	if (e->metrics != NULL)
		e->admission.waiting = kvw_metrics_gauge_sum(e->metrics, KVW_GAUGE_WAITING);
	return KVW_STEP_ON;
}

static bool promise_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)loop;
	return config->admission_enabled;
}

const struct kvw_step kvw_step_promise = {
	.name = "promise",
	.needed = promise_needed,
	.run = promise_run,
	.dry = promise_dry,
};
