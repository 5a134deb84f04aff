/*
 * key_owner.c - refuses requests for another tenant's objects at a worker (whose.h).
 */
#include "proxy/step.h"

#include <stdio.h>

#include "proxy/guard.h"
#include "proxy/loop.h"
#include "proxy/reply.h"
#include "proxy/whose.h"

/* Refuses a body that was not read, since it may continue another tenant's response. */
static bool refuse_unread(struct kvw_exchange *x)
{
	char message[256];

	if (x->path.api != KVW_API_RESPONSES || x->scanned || x->upload.framing == KVW_FRAME_NONE ||
		!kvw_whose_tenants(x))
		return false;
	(void)snprintf(message, sizeof(message),
		"keys have tenants here: the body must be a JSON object no larger than %llu bytes, "
		"sent as application/json",
		(unsigned long long)x->config->routing_scan_limit);
	kvw_guard_refuse(x, 400, KVW_COUNT_AUTH_TENANT, "tenant_not_isolated", message);
	return true;
}

/* Refuses a request for a response that is, or may be, another tenant's, as if it did not exist. */
static bool refuse_foreign(struct kvw_exchange *x)
{
	struct kvw_slice id = kvw_exchange_kept(x);
	enum kvw_owned owned;
	bool response = kvw_whose_response(x);
	char message[320];
	uint32_t worker;

	if (x->caller.key == NULL)
		return false;
	if (id.len == 0)
		return refuse_unread(x);
	owned = kvw_whose(x, &worker);
	if (owned == KVW_OWNED_KNOWN ||
		(owned == KVW_OWNED_UNKNOWN && (!response || !kvw_whose_tenants(x))))
		return false;
	kvw_metrics_add(x->loop->metrics, KVW_COUNT_AUTH_TENANT, 1);
	(void)snprintf(message, sizeof(message), "%s with id '%.*s' not found.",
		response ? "Response" : "Object", (int)(id.len < 256 ? id.len : 256), id.data);
	kvw_reply_error_as(
		x, 404, "invalid_request_error", response ? "response_id" : NULL, NULL, message);
	return true;
}

static enum kvw_stepped key_owner_run(struct kvw_exchange *x, struct kvw_way *way)
{
	(void)way;
	return refuse_foreign(x) ? KVW_STEP_ANSWERED : KVW_STEP_ON;
}

static bool key_owner_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)config;
	return loop->auth != NULL;
}

const struct kvw_step kvw_step_key_owner = {
	.name = "key_owner",
	.needed = key_owner_needed,
	.run = key_owner_run,
};
