/*
 * serve_table.c - serves the table of generations: reads and changes by engines with libkvtier.
 *
 * A change is durable when it is answered, so that the thread of jobs makes it. Any client may
 * change the table, since any client can also overwrite each object.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/server_parts.h"

/* A question about the table, and the change that it asks for. */
struct table_job {
	struct kvt_job job; /* first */
	enum kvt_status status;
	struct kvt_tenant tenant;
	struct kvt_table_ask ask;
};

static void answer_table(struct kvt_conn *conn, const struct kvt_table_ask *ask)
{
	char *text = NULL;
	size_t len = 0;
	FILE *out = open_memstream(&text, &len);

	if (out != NULL) {
		fputs("{\"id\":\"", out);
		for (size_t i = 0; i < sizeof(ask->now); i++)
			fprintf(out, "%02x", ask->now[i]);
		fprintf(out, "\",\"more\":%s,\"sum\":%" PRIu32 ",\"changes\":[",
			ask->more ? "true" : "false", ask->sum);
		for (uint32_t i = 0; i < ask->change_count; i++)
			fprintf(out, "%s[%" PRIu32 ",%" PRIu64 "]", i > 0 ? "," : "", ask->changes[i].slot,
				ask->changes[i].number);
		fputs("]}\n", out);
	}
	if (out != NULL && fclose(out) == 0)
		kvt_conn_answer_json(conn, 200, text, len);
	else
		kvt_conn_fail(conn, "", "out of memory");
	free(text);
}

static struct table_job *take_question(struct kvt_conn *conn)
{
	const struct kvt_target *target = &kvt_conn_loop(conn)->target;
	struct table_job *job = calloc(1, sizeof(*job));

	if (job == NULL) {
		kvt_conn_fail(conn, "", "out of memory");
		return NULL;
	}
	memcpy(job->ask.id, target->table, sizeof(job->ask.id));
	job->ask.after = target->number;
	job->ask.raise = target->slot;
	job->tenant = target->tenant;
	job->ask.tenant = target->has_tenant ? &job->tenant : NULL;
	return job;
}

void kvt_serve_table(struct kvt_conn *conn)
{
	struct table_job *job = take_question(conn);

	if (job == NULL)
		return;
	if (kvt_objects_table(kvt_conn_loop(conn)->server->objects, &job->ask) == KVT_OK)
		answer_table(conn, &job->ask);
	else
		kvt_conn_refuse(conn, 503, KVT_SOON, "the shared tier has not answered yet");
	free(job);
}

static void run_raise(struct kvt_job *job, struct kvt_objects *objects)
{
	struct table_job *table = (struct table_job *)job;

	table->status = kvt_objects_raise(objects, &table->ask);
	if (table->status == KVT_OK)
		table->status = kvt_objects_table(objects, &table->ask);
}

static void raised(struct kvw_mail *mail, struct kvw_server_loop *loop)
{
	struct table_job *table = (struct table_job *)mail;
	struct kvt_conn *conn = (struct kvt_conn *)kvw_conn_settle(&table->job.wait);

	(void)loop;
	if (conn != NULL) {
		if (table->status == KVT_OK)
			answer_table(conn, &table->ask);
		else
			kvt_conn_fail(conn, "not changed: ", kvt_status_text(table->status));
		kvw_conn_advance(&conn->base);
	}
	free(table);
}

void kvt_serve_raise(struct kvt_conn *conn)
{
	struct kvt_loop *loop = kvt_conn_loop(conn);
	struct table_job *table;

	if (loop->target.slot == KVT_SLOT_NONE) {
		kvt_conn_refuse(conn, 400, NULL, "expected slot=");
		return;
	}
	table = take_question(conn);
	if (table == NULL)
		return;
	table->job.wait = (struct kvw_wait){.mail.deliver = raised};
	table->job.run = run_raise;
	kvw_conn_await(&conn->base, &table->job.wait);
	if (kvt_jobs_add(loop->server->jobs, &table->job))
		return;
	(void)kvw_conn_settle(&table->job.wait);
	free(table);
	kvt_meter_add(&loop->meters, KVT_COUNT_REFUSED_JOBS, 1);
	kvt_conn_refuse(conn, 503, KVT_SOON, "too many erases wait");
}
