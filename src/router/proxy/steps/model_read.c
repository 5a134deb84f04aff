/*
 * model_read.c - refuses a body in which the model cannot be read, if the workers serve different
 * ones (unread.h).
 */
#include "proxy/step.h"

#include "proxy/loop.h"
#include "proxy/reply.h"
#include "proxy/unread.h"

static bool refuse_unread_model(struct kvw_exchange *x)
{
	if (!x->path.prompt || !kvw_upload_has_body(&x->upload) || x->scanned ||
		x->named.text.len > 0 || x->named.meant != NULL ||
		!kvw_fleet_divided(x->loop->fleet))
		return false;
	kvw_unread_note(x, KVW_COUNT_MODELS_UNREAD,
		"a request's body does not show its model: answered 400");
	kvw_reply_error_code(x, 400, NULL, "model_not_read", NULL,
		"workers serve different models here, and this body does not show which one it is "
		"for: it must be JSON "
		"in UTF-8 as this path takes it, sent as application/json, or a form that this "
		"path takes");
	return true;
}

static enum kvw_stepped model_read_run(struct kvw_exchange *x, struct kvw_way *way)
{
	(void)way;
	return refuse_unread_model(x) ? KVW_STEP_ANSWERED : KVW_STEP_ON;
}

const struct kvw_step kvw_step_model_read = {
	.name = "model_read",
	.run = model_read_run,
};
