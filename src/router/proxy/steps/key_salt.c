/*
 * key_salt.c - refuses a tenant's prompt that has no salt (rewrite.h).
 */
#include "proxy/step.h"

#include <stdio.h>

#include "proxy/guard.h"
#include "proxy/loop.h"
#include "proxy/rewrite.h"

/* Refuses a tenant's request without its salt. A request for which no engine computes needs
 * none. */
static bool refuse_unsalted(struct kvw_exchange *x)
{
	char message[256];

	if (kvw_rewrite_tenant(x).len == 0 || x->rewrite.salted ||
		x->path.kind != KVW_PATH_FORWARD || !kvw_upload_has_body(&x->upload) ||
		(x->path.prompt && !kvw_exchange_computes(x)) ||
		kvw_path_cancels(x->target, x->path.made_id))
		return false;
	if (x->path.unsalted || !x->path.prompt)
		kvw_guard_refuse(x, 403, KVW_COUNT_AUTH_TENANT, "tenant_not_isolated",
			"this API key's tenant shares no cache with others, and workers cannot "
			"keep it apart by this method on "
			"this path");
	else if (kvw_upload_exceeds(&x->upload, x->config->routing_scan_limit)) {
		(void)snprintf(message, sizeof(message),
			"this API key's tenant shares no cache with others: a body can be no "
			"larger than %llu bytes",
			(unsigned long long)x->config->routing_scan_limit);
		kvw_guard_refuse(x, 413, KVW_COUNT_AUTH_TENANT, "tenant_not_isolated", message);
	} else {
		kvw_guard_refuse(x, 400, KVW_COUNT_AUTH_TENANT, "tenant_not_isolated",
			"this API key's tenant shares no cache with others: the body must be a "
			"JSON object as this path "
			"takes it, sent as application/json");
	}
	return true;
}

static enum kvw_stepped key_salt_run(struct kvw_exchange *x, struct kvw_way *way)
{
	(void)way;
	return refuse_unsalted(x) ? KVW_STEP_ANSWERED : KVW_STEP_ON;
}

static bool key_salt_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)config;
	return loop->auth != NULL;
}

const struct kvw_step kvw_step_key_salt = {
	.name = "key_salt",
	.needed = key_salt_needed,
	.run = key_salt_run,
};
