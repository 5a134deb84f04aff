/*
 * key_fields.c - refuses a body that was not read, if its key may not send some members: kvway
 * cannot remove them from such a body.
 */
#include "proxy/step.h"

#include <stdio.h>

#include "proxy/guard.h"
#include "proxy/loop.h"
#include "proxy/reply.h"
#include "proxy/rewrite.h"

static bool refuse_unstripped(struct kvw_exchange *x)
{
	char message[256];
	int status = kvw_upload_exceeds(&x->upload, x->config->routing_scan_limit) ? 413 : 400;

	if (x->rewrite.stripped || !kvw_upload_has_body(&x->upload) || kvw_rewrite_fields(x) == 0)
		return false;
	(void)snprintf(message, sizeof(message),
		"this API key may not direct the engine (`engine_fields`), so its bodies are read: "
		"each must be as this path "
		"takes it, sent as application/json or as a form, and no larger than %llu bytes",
		(unsigned long long)x->config->routing_scan_limit);
	kvw_reply_error_code(x, status, NULL, "body_not_read", NULL, message);
	return true;
}

static enum kvw_stepped key_fields_run(struct kvw_exchange *x, struct kvw_way *way)
{
	(void)way;
	return refuse_unstripped(x) ? KVW_STEP_ANSWERED : KVW_STEP_ON;
}

static bool key_fields_needed(const struct kvw_loop *loop, const struct kvw_config *config)
{
	(void)config;
	return loop->auth != NULL;
}

const struct kvw_step kvw_step_key_fields = {
	.name = "key_fields",
	.needed = key_fields_needed,
	.run = key_fields_run,
};
