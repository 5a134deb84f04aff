/*
 * explain_http.c - see explain_http.h.
 */
#include "admin/explain_http.h"

#include <event2/buffer.h>
#include <event2/http.h>
#include <event2/keyvalq_struct.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/queue.h>

static void release_body(const void *data, size_t len, void *arg)
{
	(void)data;
	(void)len;
	free(arg);
}

static void send_answer(struct evhttp_request *request, const struct kvw_local_answer *answer)
{
	struct evkeyvalq *headers = evhttp_request_get_output_headers(request);

	evhttp_add_header(headers, "Content-Type", answer->content_type);
	evhttp_add_header(headers, "Cache-Control", "no-store");
	if (evbuffer_add_reference(evhttp_request_get_output_buffer(request), answer->body,
		    answer->len, release_body, answer->body) != 0)
		free(answer->body);
	evhttp_send_reply(request, answer->status, NULL, NULL);
}

static void send_error(
	struct evhttp_request *request, int status, const char *param, const char *message)
{
	struct kvw_local_answer answer;

	if (kvw_explain_error(status, param, message, &answer) == KVW_OK)
		send_answer(request, &answer);
	else
		evhttp_send_reply(request, 500, NULL, NULL);
}

/* Value of one cookie in one field ("a=1; b=2"); data NULL: not there. */
static struct kvw_slice cookie_in(const char *field, const char *name)
{
	size_t name_len = strlen(name);

	while (*field != '\0') {
		size_t len;

		field += strspn(field, " \t;");
		len = strcspn(field, ";");
		if (len > name_len && field[name_len] == '=' &&
			memcmp(field, name, name_len) == 0) {
			field += name_len + 1;
			len -= name_len + 1;
			while (len > 0 && (field[len - 1] == ' ' || field[len - 1] == '\t'))
				len--;
			return (struct kvw_slice){field, len};
		}
		field += len;
	}
	return (struct kvw_slice){NULL, 0};
}

static struct kvw_slice find_cookie(const struct evkeyvalq *headers, const char *name)
{
	struct kvw_slice value = {NULL, 0};
	const struct evkeyval *field;

	TAILQ_FOREACH(field, headers, next) {
		if (value.data == NULL && strcasecmp(field->key, "cookie") == 0)
			value = cookie_in(field->value, name);
	}
	return value;
}

struct kvw_slice kvw_explain_session(
	const struct kvw_config *config, const struct evkeyvalq *headers)
{
	for (size_t i = 0; i < config->session_headers.count; i++) {
		const char *value = evhttp_find_header(headers, config->session_headers.items[i]);

		if (value != NULL && *value != '\0')
			return kvw_slice_of(value);
	}
	for (size_t i = 0; i < config->session_cookies.count; i++) {
		struct kvw_slice value = find_cookie(headers, config->session_cookies.items[i]);

		if (value.len > 0)
			return value;
	}
	return (struct kvw_slice){NULL, 0};
}

/* Fills *body, borrowed from the request. False: out of memory. */
static bool take_body(struct evhttp_request *request, struct kvw_slice *body)
{
	struct evbuffer *buffer = evhttp_request_get_input_buffer(request);

	body->len = evbuffer_get_length(buffer);
	body->data = body->len > 0 ? (const char *)evbuffer_pullup(buffer, -1) : "";
	return body->data != NULL;
}

void kvw_explain_http_answer(const struct kvw_explain_source *source,
	struct evhttp_request *request, const struct kvw_explain_query *query, int64_t now_ns)
{
	struct kvw_local_answer answer;

	if (kvw_explain(source, query, now_ns, &answer) == KVW_OK)
		send_answer(request, &answer);
	else
		send_error(request, 500, NULL, "out of memory");
}

/* The parameter `path`. False: the query cannot be read. */
static bool take_target(struct evhttp_request *request, struct kvw_explain_query *query, char **text)
{
	const char *given = evhttp_uri_get_query(evhttp_request_get_evhttp_uri(request));
	struct evkeyvalq parameters = {0};
	const char *path;

	*text = NULL;
	if (given == NULL)
		return true;
	TAILQ_INIT(&parameters);
	if (evhttp_parse_query_str(given, &parameters) != 0)
		return false;
	path = evhttp_find_header(&parameters, "path");
	*text = path == NULL ? NULL : strdup(path);
	query->target = kvw_slice_of(*text);
	evhttp_clear_headers(&parameters);
	return true;
}

bool kvw_explain_http_query(const struct kvw_config *config, struct evhttp_request *request,
	struct kvw_explain_query *query, char **target_text)
{
	*query = (struct kvw_explain_query){.session = kvw_explain_session(
						    config, evhttp_request_get_input_headers(request))};
	if (!take_target(request, query, target_text))
		send_error(request, 400, NULL, "the query cannot be read; ?path=/v1/completions");
	else if (!take_body(request, &query->body))
		send_error(request, 500, NULL, "out of memory");
	else if (query->body.len > KVW_EXPLAIN_BODY_MAX)
		send_error(request, 413, NULL, "a body above 64 MiB is not explained");
	else if (query->body.len == 0)
		send_error(request, 400, NULL,
			"no body; send the one that a client would send to the router");
	else
		return true;
	free(*target_text);
	*target_text = NULL;
	return false;
}

void kvw_explain_http(const struct kvw_explain_source *source,
	const struct kvw_explain_desk *desk, struct evhttp_request *request, int64_t now_ns)
{
	struct kvw_explain_query query;
	char *target_text;

	if (evhttp_request_get_command(request) != EVHTTP_REQ_POST) {
		evhttp_add_header(evhttp_request_get_output_headers(request), "Allow", "POST");
		send_error(request, 405, NULL, "POST a request's body to have it explained");
		return;
	}
	if (!kvw_explain_http_query(source->config, request, &query, &target_text))
		return;
	if (source->strategy == NULL)
		send_error(request, 503, NULL, "kvway is starting");
	else if (!kvw_explain_wait(source, desk, request, &query, now_ns)) {
		kvw_explain_http_answer(source, request, &query, now_ns);
		kvw_token_list_put(query.tokens.list);
	}
	free(target_text);
}
