/*
 * explain_http.c - reads the parameters of POST /explain.
 */
#include "admin/explain_http.h"

#include <stdlib.h>

#include "admin/http.h"
#include "auth/auth.h"
#include "base/clock.h"

static void send_take(
	struct kvw_conn *conn, const char *allow, const struct kvw_local_answer *answer)
{
	char extra[64];
	struct kvw_writer w = KVW_WRITER(extra, sizeof(extra));

	kvw_write(&w, kvw_slice_of(allow));
	kvw_write_literal(&w, "Cache-Control: no-store\r\n");
	kvw_conn_answer(conn, &(struct kvw_http_answer){.status = answer->status,
				      .type = answer->content_type,
				      .body = {answer->body, answer->len},
				      .extra = {extra, w.len}});
	free(answer->body);
}

static void send_error(struct kvw_conn *conn, int status, const char *allow, const char *message)
{
	struct kvw_local_answer answer;

	if (kvw_explain_error(status, NULL, NULL, message, &answer) == KVW_OK)
		send_take(conn, allow, &answer);
	else
		kvw_conn_answer(conn, &(struct kvw_http_answer){.status = 500});
}

void kvw_explain_http_answer(const struct kvw_explainer *explainer, struct kvw_conn *conn,
	struct kvw_dry_run *run, int64_t now_ns)
{
	struct kvw_local_answer answer;

	if (explainer->answer(run, now_ns, &answer) == KVW_OK)
		send_take(conn, NULL, &answer);
	else
		send_error(conn, 500, NULL, "out of memory");
}

static void explain_query(const struct kvw_explain_desk *desk, struct kvw_conn *conn,
	const struct kvw_explain_query *query, int64_t now_ns)
{
	if (query->body.len > KVW_EXPLAIN_BODY_MAX)
		send_error(conn, 413, NULL, "a body above 64 MiB is not explained");
	else if (query->body.len == 0)
		send_error(conn, 400, NULL,
			"no body; send the one that a client would send to the router");
	else if (desk->explainer == NULL)
		send_error(conn, 503, NULL, "kvway is starting");
	else if (!kvw_explain_begin(desk, conn, query, now_ns))
		send_error(conn, 500, NULL, "out of memory");
}

/* Finds the key of that name, in a keyring of which the caller gets a reference. NULL: there is
 * none, and the request was answered. */
static const struct kvw_client_key *find_key(const struct kvw_explain_desk *desk,
	struct kvw_conn *conn, const char *name, struct kvw_keyring **ring)
{
	const struct kvw_client_key *key;
	uint64_t version;

	if (desk->auth == NULL) {
		send_error(conn, 400, NULL, "key: clients need no keys here (`auth.keys_file`)");
		return NULL;
	}
	*ring = kvw_auth_take(desk->auth, &version);
	key = kvw_keyring_named(*ring, name);
	if (key == NULL)
		send_error(conn, 400, NULL, "key: expected the name of a key of `auth.keys_file`");
	else if (!kvw_client_key_lives(key, kvw_clock_wall_ns() / KVW_NS_PER_S))
		send_error(conn, 403, NULL, "this key has expired");
	else
		return key;
	return NULL;
}

void kvw_explain_http(const struct kvw_explain_desk *desk, struct kvw_conn *conn, int64_t now_ns)
{
	const struct kvw_head *head = &conn->clients->head;
	struct kvw_explain_query query = {.head = head, .body = kvw_conn_body(conn)};
	char *target = NULL, *name = NULL;

	if (!head->post_method) {
		send_error(
			conn, 405, "Allow: POST\r\n", "POST a request's body to have it explained");
	} else if (!kvw_admin_http_parameter(head, "path", &target) ||
		   !kvw_admin_http_parameter(head, "key", &name)) {
		send_error(conn, 400, NULL, "the query cannot be read; ?path=/v1/completions");
	} else if (name == NULL ||
		   (query.key = find_key(desk, conn, name, &query.keyring)) != NULL) {
		query.target = kvw_slice_of(target);
		explain_query(desk, conn, &query, now_ns);
	}
	kvw_keyring_unref(query.keyring);
	free(name);
	free(target);
}
