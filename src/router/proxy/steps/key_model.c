/*
 * key_model.c - refuses a model that the request's key may not use: the model that the worker will
 * read in the body.
 *
 * Of several members `model` the last one counts, which is unknown if the body was not scanned to
 * its end.
 */
#include "proxy/step.h"

#include <stdio.h>

#include "proxy/guard.h"
#include "proxy/loop.h"
#include "proxy/understand.h"

/* Returns the model that a worker will read; len 0: not known for certain. */
static struct kvw_slice model_read_by_worker(const struct kvw_exchange *x)
{
	return kvw_upload_has_body(&x->upload) ? kvw_request_body_model(x) : x->named.text;
}

static bool refuse_key_model(struct kvw_exchange *x)
{
	struct kvw_slice model;
	char message[384];

	if (x->caller.key == NULL || x->caller.key->models.count == 0 || x->caller.model_allowed)
		return false;
	model = model_read_by_worker(x);
	if (model.len == 0 ? !kvw_upload_has_body(&x->upload)
			   : kvw_client_key_may_use(x->caller.key, model)) {
		x->caller.model_allowed = true;
		return false;
	}
	if (model.len == 0)
		(void)snprintf(message, sizeof(message),
			"this API key may use some models only: the body must be JSON that names "
			"one, and no larger "
			"than %llu bytes",
			(unsigned long long)x->config->routing_scan_limit);
	else
		(void)snprintf(message, sizeof(message),
			"this API key may not use the model `%.*s`",
			(int)(model.len < 256 ? model.len : 256), model.data);
	kvw_guard_refuse(x, 403, KVW_COUNT_AUTH_MODEL, "model_not_allowed", message);
	return true;
}

static enum kvw_stepped key_model_run(struct kvw_exchange *x, struct kvw_way *way)
{
	(void)way;
	return refuse_key_model(x) ? KVW_STEP_ANSWERED : KVW_STEP_ON;
}

static bool key_model_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)config;
	return loop->auth != NULL;
}

const struct kvw_step kvw_step_key_model = {
	.name = "key_model",
	.needed = key_model_needed,
	.run = key_model_run,
};
