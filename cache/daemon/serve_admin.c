/*
 * serve_admin.c - serves lists and erases.
 *
 * An erase is durable when it is answered, which may take a second; so the thread of jobs executes
 * it.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/server_parts.h"

/* --- lists ------------------------------------------------------------------------------------ */

/* A list that is being written to an answer. */
struct listing {
	FILE *out;
	size_t count;
};

static void write_entry(void *user, const struct kvt_object_entry *entry)
{
	static const char *const tiers[KVT_TIER_COUNT] = {
		[KVT_TIER_L1] = "memory", [KVT_TIER_NVME] = "nvme", [KVT_TIER_L2] = "l2"};
	struct listing *list = user;

	fputs(list->count++ == 0 ? "\n{\"key\":" : ",\n{\"key\":", list->out);
	kvt_json_text(list->out, entry->key, strlen(entry->key));
	fprintf(list->out, ",\"bytes\":%" PRIu64 ",\"tier\":\"%s\",\"leases\":%" PRIu32 "}",
		entry->bytes, entry->tier < KVT_TIER_COUNT ? tiers[entry->tier] : "none",
		entry->leases);
}

static void answer_text(struct kvt_conn *conn, FILE *out, char **text, const size_t *len)
{
	if (out != NULL && fclose(out) == 0)
		kvt_conn_answer_json(conn, 200, *text, *len);
	else
		kvt_conn_fail(conn, "", "out of memory");
	free(*text);
}

void kvt_serve_list(struct kvt_conn *conn)
{
	const struct kvt_target *target = &kvt_conn_loop(conn)->target;
	struct listing list = {0};
	char *text = NULL;
	size_t len = 0;
	bool more = false;

	list.out = open_memstream(&text, &len);
	if (list.out != NULL) {
		fputs("{\"bucket\":", list.out);
		kvt_json_text(list.out, target->bucket.data, target->bucket.len);
		fputs(",\"objects\":[", list.out);
		(void)kvt_objects_list(kvt_conn_loop(conn)->server->objects, target->bucket, target->after,
			target->limit, write_entry, &list, &more);
		fprintf(list.out, "],\n\"more\":%s}\n", more ? "true" : "false");
	}
	answer_text(conn, list.out, &text, &len);
}

static void write_bucket(void *user, const struct kvt_bucket_entry *entry)
{
	struct listing *list = user;

	fputs(list->count++ == 0 ? "\n{\"bucket\":" : ",\n{\"bucket\":", list->out);
	kvt_json_text(list->out, entry->bucket, strlen(entry->bucket));
	fprintf(list->out, ",\"objects\":%" PRIu64 ",\"bytes\":%" PRIu64 "}", entry->objects,
		entry->bytes);
}

void kvt_serve_buckets(struct kvt_conn *conn)
{
	struct listing list = {0};
	char *text = NULL;
	size_t len = 0;

	list.out = open_memstream(&text, &len);
	if (list.out != NULL) {
		fputs("{\"buckets\":[", list.out);
		(void)kvt_buckets_list(kvt_conn_loop(conn)->server->objects, write_bucket, &list);
		fputs("]}\n", list.out);
	}
	answer_text(conn, list.out, &text, &len);
}

/* --- erasing ---------------------------------------------------------------------------------- */

/* One DELETE. */
struct erase_job {
	struct kvt_job job; /* first */
	enum kvt_status status;
	size_t erased;
	size_t bucket_len, key_len; /* key_len 0: an erase of the whole bucket, or of a tenant */
	bool has_tenant;
	struct kvt_tenant tenant;
	char text[KVT_BUCKET_MOST + KVT_OBJECT_KEY_MOST];
};

static void run_erase(struct kvt_job *job, struct kvt_objects *objects)
{
	struct erase_job *erase = (struct erase_job *)job;
	struct kvt_object_name name = {{erase->text, erase->bucket_len},
		{erase->text + erase->bucket_len, erase->key_len}};

	if (erase->key_len == 0) {
		erase->status = kvt_bucket_erase(objects, name.bucket,
			erase->has_tenant ? &erase->tenant : NULL, &erase->erased);
	} else {
		erase->status = kvt_object_erase(objects, &name);
		erase->erased = erase->status == KVT_OK;
	}
}

static void answer_erase(struct kvt_conn *conn, const struct erase_job *erase)
{
	char text[64];
	int n;

	if (erase->status == KVT_MISS) {
		kvt_conn_refuse(conn, 404, NULL, "not found");
	} else if (erase->status == KVT_EINVAL) {
		kvt_conn_refuse(conn, 400, NULL, "not erased: %s", kvt_status_text(erase->status));
	} else if (erase->status != KVT_OK) {
		kvt_conn_fail(conn, "not erased: ", kvt_status_text(erase->status));
	} else {
		n = snprintf(text, sizeof(text), "{\"erased\":%zu}\n", erase->erased);
		kvt_conn_answer_json(conn, 200, text, (size_t)n);
	}
}

static void erased(struct kvw_mail *mail, struct kvw_server_loop *loop)
{
	struct erase_job *erase = (struct erase_job *)mail;
	struct kvt_conn *conn = (struct kvt_conn *)kvw_conn_settle(&erase->job.wait);

	(void)loop;
	if (conn != NULL) {
		answer_erase(conn, erase);
		kvw_conn_advance(&conn->base);
	}
	free(erase);
}

void kvt_serve_erase(struct kvt_conn *conn)
{
	struct kvt_loop *loop = kvt_conn_loop(conn);
	struct kvw_slice key = loop->target.key;
	struct erase_job *erase = calloc(1, sizeof(*erase));

	if (erase == NULL) {
		kvt_conn_fail(conn, "", "out of memory");
		return;
	}
	erase->job.wait = (struct kvw_wait){.mail.deliver = erased};
	erase->job.run = run_erase;
	erase->bucket_len = loop->target.bucket.len;
	erase->key_len = key.len;
	erase->has_tenant = loop->target.has_tenant;
	erase->tenant = loop->target.tenant;
	memcpy(erase->text, loop->target.bucket.data, erase->bucket_len);
	if (erase->key_len > 0)
		memcpy(erase->text + erase->bucket_len, key.data, erase->key_len);
	kvw_conn_await(&conn->base, &erase->job.wait);
	if (kvt_jobs_add(loop->server->jobs, &erase->job))
		return;
	(void)kvw_conn_settle(&erase->job.wait);
	free(erase);
	kvt_meter_add(&loop->meters, KVT_COUNT_REFUSED_JOBS, 1);
	kvt_conn_refuse(conn, 503, KVT_SOON, "too many erases wait");
}

void kvt_serve_erase_bucket(struct kvt_conn *conn)
{
	kvt_serve_erase(conn);
}
