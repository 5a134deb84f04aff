/*
 * model_named.c - refuses a body that names no model, if the workers serve several models and
 * limits are set for models.
 */
#include "proxy/step.h"

#include <stdio.h>

#include "proxy/loop.h"
#include "proxy/reply.h"

static bool refuse_unnamed(struct kvw_exchange *x)
{
	char message[256];

	if (!x->named.absent || x->named.meant != NULL || !kvw_exchange_computes(x))
		return false;
	(void)snprintf(message, sizeof(message),
		"the body must name a `model` in its first %llu bytes: workers serve several here, "
		"and some have limits",
		(unsigned long long)x->config->routing_scan_limit);
	kvw_reply_error_code(x, 400, NULL, "model_not_named", NULL, message);
	return true;
}

static enum kvw_stepped model_named_run(struct kvw_exchange *x, struct kvw_way *way)
{
	(void)way;
	return refuse_unnamed(x) ? KVW_STEP_ANSWERED : KVW_STEP_ON;
}

static bool model_named_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)loop;
	return kvw_config_limits_models(config);
}

const struct kvw_step kvw_step_model_named = {
	.name = "model_named",
	.needed = model_named_needed,
	.run = model_named_run,
};
