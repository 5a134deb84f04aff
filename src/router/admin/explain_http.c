/*
 * explain_http.c - see explain_http.h.
 */
#include "admin/explain_http.h"

#include <stdlib.h>

#include "admin/http.h"
#include "admission/admission.h"
#include "auth/auth.h"
#include "base/clock.h"
#include "fleet/pin.h"
#include "openai/api_path.h"

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

	if (kvw_explain_error(status, NULL, message, &answer) == KVW_OK)
		send_take(conn, allow, &answer);
	else
		kvw_conn_answer(conn, &(struct kvw_http_answer){.status = 500});
}

struct kvw_slice kvw_explain_session(const struct kvw_config *config, const struct kvw_head *head)
{
	for (size_t i = 0; i < config->session_headers.count; i++) {
		const struct kvw_field *field =
			kvw_head_find(head, kvw_slice_of(config->session_headers.items[i]));

		if (field != NULL && field->value.len > 0)
			return field->value;
	}
	for (size_t i = 0; i < config->session_cookies.count; i++) {
		struct kvw_slice value =
			kvw_head_cookie(head, kvw_slice_of(config->session_cookies.items[i]));

		if (value.len > 0)
			return value;
	}
	return (struct kvw_slice){NULL, 0};
}

struct kvw_slice kvw_explain_tenant(const struct kvw_head *head)
{
	const struct kvw_field *field = kvw_head_find(head, KVW_SLICE("x-kvway-tenant"));

	return field == NULL ? (struct kvw_slice){NULL, 0} : field->value;
}

static struct kvw_slice value_of(const struct kvw_field *field)
{
	return field == NULL ? (struct kvw_slice){NULL, 0} : field->value;
}

static struct kvw_slice group_of(const struct kvw_config *config, const struct kvw_head *head)
{
	return value_of(config->groups_header[0] != '\0'
			? kvw_head_find(head, kvw_slice_of(config->groups_header))
			: NULL);
}

struct kvw_slice kvw_explain_pin(const struct kvw_config *config, const struct kvw_head *head)
{
	const struct kvw_field *field =
		config->http_pin ? kvw_head_find(head, KVW_SLICE(KVW_PIN_FIELD)) : NULL;

	return field == NULL ? (struct kvw_slice){NULL, 0} : field->value;
}

void kvw_explain_class(const struct kvw_config *config, const struct kvw_head *head,
	const struct kvw_client_key *key, struct kvw_explain_query *query)
{
	const struct kvw_field *class = NULL;
	const struct kvw_field *impatient = kvw_head_find(head, KVW_SLICE("x-kvway-do-not-queue"));
	const struct kvw_field *deadline = kvw_head_find(head, KVW_SLICE("x-kvway-deadline-ms"));
	const struct kvw_strings *names = &config->admission_program_headers;
	struct kvw_slice name = {NULL, 0};

	if (config->admission_class_header[0] != '\0' && (key == NULL || key->trusted))
		class = kvw_head_find(head, kvw_slice_of(config->admission_class_header));
	if (class != NULL)
		name = class->value;
	if (name.len == 0 && key != NULL)
		name = kvw_slice_of(key->class);
	query->class_index = kvw_config_class(config, name);
	query->deadline_ns = deadline == NULL ? 0 : kvw_admission_deadline_ns(deadline->value);
	query->program = 0;
	for (size_t i = 0; i < names->count && query->program == 0; i++) {
		const struct kvw_field *field = kvw_head_find(head, kvw_slice_of(names->items[i]));

		query->program = field == NULL || field->value.len == 0
					 ? 0
					 : kvw_program_of_key(kvw_program_named(field->value),
						   kvw_slice_of(key == NULL ? NULL : key->name));
	}
	query->impatient = impatient != NULL && kvw_slice_equal(impatient->value, KVW_SLICE("1"));
}

void kvw_explain_http_answer(const struct kvw_explain_source *source, struct kvw_conn *conn,
	const struct kvw_explain_query *query, int64_t now_ns)
{
	struct kvw_local_answer answer;

	if (kvw_explain(source, query, now_ns, &answer) == KVW_OK)
		send_take(conn, NULL, &answer);
	else
		send_error(conn, 500, NULL, "out of memory");
}

static void explain(const struct kvw_explain_source *source, const struct kvw_explain_desk *desk,
	struct kvw_conn *conn, struct kvw_explain_query *query, int64_t now_ns)
{
	if (query->body.len > KVW_EXPLAIN_BODY_MAX)
		send_error(conn, 413, NULL, "a body above 64 MiB is not explained");
	else if (query->body.len == 0)
		send_error(conn, 400, NULL,
			"no body; send the one that a client would send to the router");
	else if (source->strategy == NULL)
		send_error(conn, 503, NULL, "kvway is starting");
	else if (!kvw_explain_wait(source, desk, conn, query, now_ns)) {
		kvw_explain_http_answer(source, conn, query, now_ns);
		kvw_token_list_put(query->tokens.list);
	}
}

/* The key of that name, of a ring whose reference is the caller's. NULL: the request is answered. */
static const struct kvw_client_key *find_key(const struct kvw_explain_desk *desk, struct kvw_conn *conn,
	const char *name, const char *target, struct kvw_keyring **ring)
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
	else if (target != NULL && key->paths.count > 0 &&
		 !kvw_path_listed(kvw_slice_of(target), (const char *const *)key->paths.items, key->paths.count))
		send_error(conn, 403, NULL, "this key may not use this path");
	else
		return key;
	return NULL;
}

void kvw_explain_http(const struct kvw_explain_source *source,
	const struct kvw_explain_desk *desk, struct kvw_conn *conn, int64_t now_ns)
{
	const struct kvw_head *head = &conn->clients->head;
	struct kvw_explain_query query = {
		.session = kvw_explain_session(source->config, head),
		.tenant = kvw_explain_tenant(head),
		.pin = kvw_explain_pin(source->config, head),
		.group = group_of(source->config, head),
		.id = value_of(kvw_head_field(head, KVW_FIELD_X_REQUEST_ID)),
		.body = kvw_conn_body(conn)};
	char *target = NULL, *name = NULL;
	const struct kvw_client_key *key = NULL;
	struct kvw_keyring *ring = NULL;

	if (!head->post_method) {
		send_error(conn, 405, "Allow: POST\r\n", "POST a request's body to have it explained");
	} else if (!kvw_admin_http_parameter(head, "path", &target) ||
		   !kvw_admin_http_parameter(head, "key", &name)) {
		send_error(conn, 400, NULL, "the query cannot be read; ?path=/v1/completions");
	} else if (name == NULL || (key = find_key(desk, conn, name, target, &ring)) != NULL) {
		kvw_explain_class(source->config, head, key, &query);
		if (key != NULL) {
			query.tenant = kvw_slice_of(key->tenant);
			query.key = kvw_slice_of(key->name);
			query.key_limits = KVW_RATE_LIMITS_OF(key);
		}
		if (key != NULL && !key->trusted)
			query.pin = query.group = (struct kvw_slice){NULL, 0};
		query.target = kvw_slice_of(target);
		explain(source, desk, conn, &query, now_ns);
	}
	kvw_keyring_unref(ring);
	free(name);
	free(target);
}
