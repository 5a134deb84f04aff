/*
 * kvtierd_table.c - the table of generations (chunk/slots.h), which kvtierd keeps for its clients.
 *
 * Another daemon has none: chunks there have names that do not change, and erases of tenants, or of all, are not
 * possible.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tiers/kvtierd/kvtierd.h"

/* A table that never changes. */
static void have_none(struct kvt_table_ask *ask)
{
	memset(ask->now, 0xff, sizeof(ask->now));
	ask->change_count = 0;
	ask->more = false;
}

static enum kvt_status judge(struct kvtierd *t, const struct kvtierd_exchange *x, struct kvt_table_ask *ask)
{
	int status;

	if (x->status != KVT_OK)
		return kvtierd_failed(t, x);
	status = x->answer->status;
	if (status == 200 && kvtierd_table_parse(x->answer->text, x->answer->text_len, ask) == KVT_OK) {
		kvtierd_works(t);
		return KVT_OK;
	}
	if (!x->answer->kvtierd && ask->raise == KVT_SLOT_NONE && status >= 400 && status < 600 && status != 503) {
		have_none(ask);
		return KVT_OK;
	}
	return status == 200 ? KVT_EIO : kvtierd_refused(t, x);
}

static void answered(struct kvtierd_exchange *x)
{
	struct kvtierd_job *job = x->user;

	kvtierd_job_done(job, judge(job->t, x, job->request->table) == KVT_OK ? KVT_OK : KVT_EIO);
}

void kvtierd_table_begin(struct kvtierd_job *job)
{
	struct kvtierd *t = job->t;

	if (job->request->table == NULL) {
		kvtierd_job_done(job, KVT_EINVAL);
		return;
	}
	kvtierd_ask_table(&t->place, job->request->table, &job->x);
	job->x.once = job->request->table->raise != KVT_SLOT_NONE;
	job->x.deadline_ns = job->deadline_ns;
	job->x.done = answered;
	job->x.user = job;
	kvtierd_http_submit(t->http, &job->x);
}
