/*
 * sagemaker.h - what the head of a request to /invocations says: SageMaker's fields, which workers
 * obey.
 *
 * `X-Amzn-SageMaker-Adapter-Identifier` is the model that a worker reads, whatever the body names,
 * and without it vLLM serves its base model: so it counts as the body's `model` would on another
 * path, and is written where the body names an adapter. `X-Amzn-SageMaker-Session-Id` names a
 * session that lives on the worker that has made it and said so in
 * `X-Amzn-SageMaker-New-Session-Id`: a request of the session goes there, as one that goes on with
 * a stored response does (owners.h). The value NEW_SESSION asks for one, at any worker.
 */
#ifndef KVW_SAGEMAKER_H
#define KVW_SAGEMAKER_H

#include "proxy/exchange.h"

/* Notes what the head of a request says. On other paths than /invocations: nothing. */
void kvw_sagemaker_note(struct kvw_exchange *x, const struct kvw_head *head);

/* A session field with this value is not one yet. */
static inline bool kvw_sagemaker_no_session(struct kvw_slice value)
{
	return kvw_slice_equal(value, KVW_SLICE("NEW_SESSION"));
}

#define KVW_SAGEMAKER_MODEL 256 /* longest name of a model that is written, bytes */
#define KVW_SAGEMAKER_ROOM  (KVW_SAGEMAKER_MODEL + 64)

/* Writes the field that names the model which x->attempt.worker has to read, if it needs one, in
 * place of the client's own. w has KVW_SAGEMAKER_ROOM. */
void kvw_sagemaker_name_model(
	const struct kvw_exchange *x, struct kvw_head *head, struct kvw_writer *w);

/* Remembers which worker has made a session, by the head of its answer. */
void kvw_sagemaker_answered(const struct kvw_exchange *x, const struct kvw_head *head);

#endif
