/*
 * sagemaker.h - SageMaker's fields in the head of a request to /invocations, which workers obey.
 *
 * `X-Amzn-SageMaker-Adapter-Identifier` names the model to a worker, whatever the body names, and
 * without the field vLLM serves its base model: so kvway treats the field like the body's `model`
 * on another path, and writes the field where the body names an adapter.
 * `X-Amzn-SageMaker-Session-Id` names a session that lives on the worker that made it and announced
 * it in `X-Amzn-SageMaker-New-Session-Id`: a request of the session goes to that worker, like one
 * that continues a stored response (owners.h). The value NEW_SESSION asks any worker for a session.
 */
#ifndef KVW_SAGEMAKER_H
#define KVW_SAGEMAKER_H

#include "proxy/exchange.h"

/* Notes the fields of a request's head. No effect on other paths than /invocations. */
void kvw_sagemaker_note(struct kvw_exchange *x, const struct kvw_head *head);

/* Returns whether a session field with this value names no session yet. */
static inline bool kvw_sagemaker_no_session(struct kvw_slice value)
{
	return kvw_slice_equal(value, KVW_SLICE("NEW_SESSION"));
}

#define KVW_SAGEMAKER_MODEL 256 /* longest model name that is written, bytes */
#define KVW_SAGEMAKER_ROOM  (KVW_SAGEMAKER_MODEL + 64)

/* Writes the field that names the model to x->attempt.worker, if the worker needs one, in place of
 * the client's own. w has KVW_SAGEMAKER_ROOM. */
void kvw_sagemaker_name_model(
	const struct kvw_exchange *x, struct kvw_head *head, struct kvw_writer *w);

/* Notes the worker that has made a session, by the head of its answer. An answer that makes or
 * closes one needs no body. */
void kvw_sagemaker_answered(struct kvw_exchange *x, const struct kvw_head *head);

#endif
