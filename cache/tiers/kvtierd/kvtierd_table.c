/*
 * kvtierd_table.c - the table of generations (chunk/slots.h), which kvtierd keeps for its clients.
 *
 * A daemon of another make has no table, and answers 404, 405 or 501: chunks there have constant
 * names, and erases of tenants, or of all, are impossible. Any other status, or one of these from a
 * daemon that has answered with a table, is a failure: otherwise an answer from a proxy, a limit or
 * an overload could make erased chunks reachable again.
 */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tiers/kvtierd/kvtierd.h"

/* If this daemon has no table, answers the question with a table that never changes, and returns
 * true. */
static bool has_none(const struct kvtierd_reader *answer, struct kvt_table_ask *ask)
{
	static const uint8_t unknown[KVT_TABLE_ID_BYTES];
	uint8_t none[KVT_TABLE_ID_BYTES];

	memset(none, 0xff, sizeof(none));
	if (answer->kvtierd || ask->raise != KVT_SLOT_NONE)
		return false;
	if (answer->status != 404 && answer->status != 405 && answer->status != 501)
		return false;
	if (memcmp(ask->id, unknown, sizeof(none)) != 0 && memcmp(ask->id, none, sizeof(none)) != 0)
		return false;
	memcpy(ask->now, none, sizeof(none));
	ask->change_count = ask->sum = 0;
	ask->more = false;
	return true;
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
	if (has_none(x->answer, ask))
		return KVT_OK;
	if (status != 200)
		(void)kvtierd_refused(t, x);
	return KVT_ENOTSUP;
}

static void answered(struct kvtierd_exchange *x)
{
	struct kvtierd_job *job = x->user;

	kvtierd_job_done(job, judge(job->t, x, job->request->table));
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
