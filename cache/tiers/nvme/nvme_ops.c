/*
 * nvme_ops.c - queues of requests, the pool of jobs, and operations of the I/O layer.
 *
 * A finished operation is passed to its actor's done(), so this file does not depend on the files
 * that begin operations.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tiers/nvme/nvme.h"

#define REAP_AT_ONCE 64

/* --- queues
 * ------------------------------------------------------------------------------------ */

void nvme_queue_add(struct nvme_queue *q, struct kvt_tier_request *r)
{
	r->next = NULL;
	if (q->last == NULL)
		q->first = r;
	else
		q->last->next = r;
	q->last = r;
	q->bytes += r->bytes;
}

void nvme_queue_push(struct nvme_queue *q, struct kvt_tier_request *r)
{
	r->next = q->first;
	q->first = r;
	if (q->last == NULL)
		q->last = r;
	q->bytes += r->bytes;
}

struct kvt_tier_request *nvme_queue_take(struct nvme_queue *q)
{
	struct kvt_tier_request *r = q->first;

	if (r == NULL)
		return NULL;
	q->first = r->next;
	if (q->first == NULL)
		q->last = NULL;
	q->bytes -= r->bytes;
	r->next = NULL;
	return r;
}

void nvme_finish(struct kvt_tier_request *request, enum kvt_status status)
{
	request->next = NULL;
	request->status = status;
	request->done(request);
}

/* --- operations
 * -------------------------------------------------------------------------------- */

struct kvt_io_op *nvme_op_take(struct nvme *t, struct nvme_actor *actor)
{
	struct kvt_io_op *op = t->free_ops;

	if (op == NULL)
		return NULL;
	t->free_ops = op->next;
	op->next = NULL;
	op->user = actor;
	op->result = 0;
	op->offset = 0;
	return op;
}

void nvme_op_begin(struct nvme *t, struct kvt_io_op *op)
{
	op->next = NULL;
	*t->batch_end = op;
	t->batch_end = &op->next;
	t->ops_under_way++;
}

void nvme_op_give(struct nvme *t, struct kvt_io_op *op)
{
	op->next = t->free_ops;
	t->free_ops = op;
}

void nvme_submit_batch(struct nvme *t)
{
	struct kvt_io_op *list = t->batch;

	if (list == NULL)
		return;
	t->batch = NULL;
	t->batch_end = &t->batch;
	t->io->ops->submit(t->io, list);
}

size_t nvme_reap(struct nvme *t, int64_t wait_ns)
{
	struct kvt_io_op *ops[REAP_AT_ONCE];
	size_t n = t->io->ops->reap(t->io, ops, REAP_AT_ONCE, wait_ns);

	for (size_t i = 0; i < n; i++) {
		struct nvme_actor *actor = ops[i]->user;

		t->ops_under_way--;
		actor->done(t, actor, ops[i]);
	}
	return n;
}

void nvme_io_failed(struct nvme *t, const char *what, int error)
{
	char text[64];

	pthread_mutex_lock(&t->lock);
	t->io_errors++;
	(void)snprintf(t->reason, sizeof(t->reason), "%s: %s", what,
		error != 0 ? strerror_r(error, text, sizeof(text)) : t->io->ops->why(t->io));
	pthread_mutex_unlock(&t->lock);
	if (t->failures++ == 0)
		kvt_note(t->s, KVT_LOG_ERROR, "nvme: %s", t->reason);
}

void nvme_io_worked(struct nvme *t)
{
	t->failures = 0;
}

/* --- jobs
 * -------------------------------------------------------------------------------------- */

struct nvme_job *nvme_job_take(struct nvme *t)
{
	struct nvme_job *job = t->free_jobs;

	if (job != NULL)
		t->free_jobs = job->link;
	return job;
}

void nvme_job_give(struct nvme *t, struct nvme_job *job)
{
	free(job->bounce);
	job->bounce = NULL;
	free(job->stored);
	job->stored = NULL;
	job->request = NULL;
	job->link = t->free_jobs;
	t->free_jobs = job;
}
