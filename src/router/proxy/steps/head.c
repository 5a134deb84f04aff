/*
 * head.c - builds the request's head for its worker.
 */
#include "proxy/step.h"

#include "proxy/loop.h"
#include "proxy/pd.h"
#include "proxy/reply.h"
#include "proxy/worker_head.h"

static bool build_head(struct kvw_exchange *x)
{
	struct kvw_attempt *a = &x->attempt;
	struct kvw_worker_body body = {
		.framing = x->upload.framing, .content_length = x->upload.content_length};

	if (kvw_pd_body(x) != NULL) {
		body.framing = KVW_FRAME_LENGTH;
		body.content_length = x->pd->body.len;
	}
	a->head = kvw_worker_head(x, a->worker, &body);
	a->head_sent = 0;
	return a->head != NULL;
}

static enum kvw_stepped head_run(struct kvw_exchange *x, struct kvw_way *way)
{
	(void)way;
	if (build_head(x))
		return KVW_STEP_ON;
	kvw_reply_error(x, 431, "the request head is too large to forward");
	return KVW_STEP_ANSWERED;
}

const struct kvw_step kvw_step_head = {
	.name = "head",
	.acts = true,
	.run = head_run,
};
