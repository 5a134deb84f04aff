/*
 * alias.c - refuses a request that names an alias which could not be replaced in its body, since no
 * worker knows an alias.
 */
#include "proxy/step.h"

#include <stdio.h>

#include "proxy/guard.h"
#include "proxy/loop.h"
#include "proxy/reply.h"

static bool refuse_alias(struct kvw_exchange *x)
{
	const struct kvw_model_alias *alias = x->rewrite.alias != NULL
						      ? x->rewrite.alias
						      : kvw_config_alias(x->config, x->route.model);
	char message[512];
	int status;

	if (alias == NULL || x->rewrite.rename_to != NULL)
		return false;
	(void)snprintf(message, sizeof(message),
		"the model `%s` is an alias: it must stand in a body that can be read, on a path "
		"of inference, no larger "
		"than %llu bytes, not in the URL",
		alias->name, (unsigned long long)x->config->routing_scan_limit);
	status = kvw_upload_exceeds(&x->upload, x->config->routing_scan_limit) ? 413 : 400;
	kvw_reply_error_code(x, status, NULL, "model_alias", NULL, message);
	return true;
}

static enum kvw_stepped alias_run(struct kvw_exchange *x, struct kvw_way *way)
{
	(void)way;
	return refuse_alias(x) ? KVW_STEP_ANSWERED : KVW_STEP_ON;
}

static bool alias_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)loop;
	return config->model_alias_count > 0;
}

const struct kvw_step kvw_step_alias = {
	.name = "alias",
	.needed = alias_needed,
	.run = alias_run,
};
