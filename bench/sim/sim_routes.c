/*
 * sim_routes.c - which path is answered by what; the small answers of a vLLM server.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_openai.h"
#include "bench/sim/sim_prompt.h"
#include "bench/sim/sim_routes.h"
#include "bench/sim/sim_reporter.h"
#include "bench/sim/sim_transfer.h"

typedef void route_fn(struct kvb_worker *, struct kvb_conn *, const struct kvb_request *);

static void reply_text(struct kvb_conn *conn, const char *json)
{
	struct kvb_reply reply = {.status = 200, .content_type = "application/json"};

	kvb_http_reply(conn, &reply, json, strlen(json));
}

void kvb_reply_json(struct kvb_conn *conn, int status, struct kvb_buf *body)
{
	struct kvb_reply reply = {.status = status, .content_type = "application/json"};

	kvb_http_reply(conn, &reply, body->data, body->len);
	kvb_buf_finish(body);
}

static int hex_value(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

bool kvb_query_get(const struct kvb_request *request, const char *name, char *out, size_t size)
{
	size_t name_len = strlen(name), n = 0;
	const char *at = request->query;

	while (strncmp(at, name, name_len) != 0 || at[name_len] != '=') {
		at = strchr(at, '&');
		if (at == NULL)
			return false;
		at++;
	}
	for (at += name_len + 1; *at != '\0' && *at != '&'; at++) {
		if (n + 1 >= size)
			return false;
		if (*at == '%' && hex_value(at[1]) >= 0 && hex_value(at[2]) >= 0) {
			out[n++] = (char)(hex_value(at[1]) * 16 + hex_value(at[2]));
			at += 2;
		} else {
			out[n++] = *at == '+' ? ' ' : *at;
		}
	}
	out[n] = '\0';
	return true;
}

static void get_health(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	struct kvb_reply reply = {.status = worker->health_status};

	(void)request;
	kvb_http_reply(conn, &reply, "", 0);
}

static void get_load(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	struct kvb_buf body = {0};

	uint32_t load = 0;

	(void)request;
	for (uint32_t i = 0; i < worker->options->ranks; i++)
		load += worker->ranks[i]->load;
	kvb_buf_printf(&body, "{\"server_load\":%u}", load);
	kvb_reply_json(conn, 200, &body);
}

static void get_version(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	(void)worker;
	(void)request;
	reply_text(conn, "{\"version\":\"0.32.0\"}");
}

static void get_event_sources(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	struct kvb_buf body = {0};

	(void)request;
	kvb_buf_text(&body, "{");
	for (uint32_t i = 0; i < worker->options->ranks; i++)
		kvb_reporter_sources(worker->ranks[i]->reporter, i == 0, &body);
	kvb_buf_text(&body, "}");
	kvb_reply_json(conn, 200, &body);
}

static void get_metrics(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	struct kvb_reply reply = {
		.status = 200, .content_type = "text/plain; version=1.0.0; charset=utf-8"};
	struct kvb_buf body = {0};

	(void)request;
	kvb_metrics_write(worker, &body);
	kvb_http_reply(conn, &reply, body.data, body.len);
	kvb_buf_finish(&body);
}

static void add_model(
	struct kvb_worker *worker, struct kvb_buf *out, const char *name, const char *parent)
{
	long long created = (long long)worker->start_s;

	kvb_buf_text(out, "{\"id\":");
	kvb_buf_json(out, name, strlen(name));
	kvb_buf_printf(out,
		",\"object\":\"model\",\"created\":%lld,\"owned_by\":\"vllm\",\"root\":", created);
	kvb_buf_json(out, name, strlen(name));
	kvb_buf_text(out, ",\"parent\":");
	if (parent == NULL)
		kvb_buf_text(out, "null");
	else
		kvb_buf_json(out, parent, strlen(parent));
	if (parent == NULL)
		kvb_buf_printf(out, ",\"max_model_len\":%u", worker->options->max_model_len);
	else
		kvb_buf_text(out, ",\"max_model_len\":null");
	kvb_buf_printf(out,
		",\"permission\":[{\"id\":\"modelperm-%016llx\",\"object\":\"model_permission\","
		"\"created\":%lld,\"allow_create_engine\":false,\"allow_sampling\":true,"
		"\"allow_logprobs\":true,\"allow_search_indices\":false,\"allow_view\":true,"
		"\"allow_fine_tuning\":false,\"organization\":\"*\",\"group\":null,"
		"\"is_blocking\":false}]}",
		(unsigned long long)kvb_worker_random(worker), created);
}

static void get_models(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	struct kvb_buf body = {0};

	(void)request;
	kvb_buf_text(&body, "{\"object\":\"list\",\"data\":[");
	add_model(worker, &body, worker->options->model, NULL);
	for (uint32_t i = 0; i < worker->options->lora_count; i++) {
		kvb_buf_text(&body, ",");
		add_model(worker, &body, worker->options->loras[i], worker->options->model);
	}
	kvb_buf_text(&body, "]}");
	kvb_reply_json(conn, 200, &body);
}

/* Body and model of a request that does not generate; NULL after an error was sent. */
static json_t *read_body(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	struct kvb_error error;
	json_t *body = kvb_openai_parse(request, &error);
	const char *model;
	bool lora;

	if (body != NULL && kvb_openai_model(worker, body, &model, &lora, &error))
		return body;
	json_decref(body);
	kvb_error_send(conn, &error, false);
	return NULL;
}

static bool tokenize(const json_t *body, struct kvb_tokens *out, struct kvb_error *error)
{
	json_t *prompt = json_object_get(body, "prompt"),
	       *messages = json_object_get(body, "messages");
	json_t *generation = json_object_get(body, "add_generation_prompt");

	if (json_is_string(prompt))
		return kvb_prompt_content(out, prompt);
	if (!json_is_array(messages)) {
		kvb_error_missing(error, "prompt", (unsigned)json_object_size(body));
		return false;
	}
	kvb_prompt_tools(out, json_object_get(body, "tools"));
	if (!kvb_prompt_messages(out, messages)) {
		kvb_error_type(error, "messages", "list");
		return false;
	}
	if (!json_is_false(generation))
		kvb_prompt_generation(out);
	return true;
}

static void post_tokenize(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	json_t *body = read_body(worker, conn, request);
	struct kvb_tokens tokens = {.separator = kvb_worker_separator(worker)};
	struct kvb_buf out = {0};
	struct kvb_error error;

	if (body == NULL)
		return;
	if (!tokenize(body, &tokens, &error)) {
		kvb_error_send(conn, &error, false);
		goto out;
	}
	kvb_buf_printf(&out, "{\"count\":%zu,\"max_model_len\":%u,\"tokens\":", tokens.count,
		worker->options->max_model_len);
	kvb_buf_ids(&out, tokens.ids, tokens.count);
	kvb_buf_text(&out, ",\"token_strs\":");
	if (json_is_true(json_object_get(body, "return_token_strs"))) {
		for (size_t i = 0; i < tokens.count; i++) {
			kvb_buf_text(&out, i == 0 ? "[" : ",");
			kvb_buf_json_tokens(&out, &tokens.ids[i], 1);
		}
		kvb_buf_text(&out, tokens.count == 0 ? "[]}" : "]}");
	} else {
		kvb_buf_text(&out, "null}");
	}
	kvb_reply_json(conn, 200, &out);
out:
	kvb_tokens_free(&tokens);
	json_decref(body);
}

static void post_detokenize(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	json_t *body = read_body(worker, conn, request);
	json_t *ids = json_object_get(body, "tokens");
	struct kvb_tokens tokens = {0};
	struct kvb_buf out = {0};
	struct kvb_error error;
	json_int_t bad;

	if (body == NULL)
		return;
	if (!json_is_array(ids)) {
		kvb_error_missing(&error, "tokens", (unsigned)json_object_size(body));
		kvb_error_send(conn, &error, false);
	} else if (!kvb_prompt_ids(&tokens, ids, &bad)) {
		kvb_error_type(&error, "tokens", "integer");
		kvb_error_send(conn, &error, false);
	} else {
		kvb_buf_text(&out, "{\"prompt\":");
		kvb_buf_json_tokens(&out, tokens.ids, tokens.count);
		kvb_buf_text(&out, "}");
		kvb_reply_json(conn, 200, &out);
	}
	kvb_tokens_free(&tokens);
	json_decref(body);
}

static void post_reset(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	bool good = true;

	(void)request;
	for (uint32_t i = 0; i < worker->options->ranks; i++)
		good = kvb_engine_reset_cache(worker->ranks[i]->engine) && good;
	reply_text(conn, good ? "{\"success\":true}" : "{\"success\":false}");
}

static void post_sleep(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	struct kvb_buf body = {0};
	char level[8] = "1";

	kvb_query_get(request, "level", level, sizeof(level));
	for (uint32_t i = 0; i < worker->options->ranks; i++) {
		worker->ranks[i]->sleeping = true;
		worker->ranks[i]->sleep_level = level[0] == '2' ? 2 : 1;
		kvb_engine_reset_cache(worker->ranks[i]->engine);
	}
	kvb_buf_printf(&body, "{\"status\":\"sleeping\",\"level\":%d}", worker->sleep_level);
	kvb_reply_json(conn, 200, &body);
}

static void post_wake_up(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	(void)request;
	reply_text(conn, "{\"status\":\"awake\",\"tags\":null}");
	for (uint32_t i = 0; i < worker->options->ranks; i++) {
		worker->ranks[i]->sleeping = false;
		kvb_worker_kick(worker->ranks[i]);
	}
}

static void get_is_sleeping(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	(void)request;
	reply_text(conn, worker->sleeping ? "{\"is_sleeping\":true}" : "{\"is_sleeping\":false}");
}

static void post_pause(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	(void)request;
	for (uint32_t i = 0; i < worker->options->ranks; i++)
		worker->ranks[i]->paused = true;
	reply_text(conn, "{\"status\":\"paused\"}");
}

static void post_resume(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	(void)request;
	reply_text(conn, "{\"status\":\"resumed\"}");
	for (uint32_t i = 0; i < worker->options->ranks; i++) {
		worker->ranks[i]->paused = false;
		kvb_worker_kick(worker->ranks[i]);
	}
}

static void get_is_paused(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	(void)request;
	reply_text(conn, worker->paused ? "{\"is_paused\":true}" : "{\"is_paused\":false}");
}

static void post_render_completions(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	kvb_render_request(worker, conn, request, &kvb_api_completions);
}

static void post_render_chat(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	kvb_render_request(worker, conn, request, &kvb_api_chat);
}

static void post_completions(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	kvb_openai_request(worker, conn, request, &kvb_api_completions);
}

static void post_chat(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	kvb_openai_request(worker, conn, request, &kvb_api_chat);
}

/* Serves SageMaker's path, on which the body decides the API. */
static void post_invocations(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	json_t *body = json_loadb(request->body, request->body_len, 0, NULL);
	bool chat = json_object_get(body, "messages") != NULL;

	json_decref(body);
	(chat ? post_chat : post_completions)(worker, conn, request);
}

static void post_messages(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	kvb_openai_request(worker, conn, request, &kvb_api_messages);
}

static void post_responses(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	kvb_openai_request(worker, conn, request, &kvb_api_responses);
}

/* Serves GET /v1/responses/ID for responses that this worker made and still remembers. */
static void get_response(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	const char *id = request->path + strlen("/v1/responses/");
	const struct kvb_buf *kept = NULL;
	struct kvb_reply reply = {.status = 200, .content_type = "application/json"};
	struct kvb_error error;

	for (uint32_t i = 0; i < worker->options->ranks && kept == NULL; i++)
		kept = kvb_worker_response(worker->ranks[i], id);
	if (kept != NULL) {
		kvb_http_reply(conn, &reply, kept->data, kept->len);
		return;
	}
	kvb_error_set(&error, 404, "invalid_request_error", "response_id",
		"Response with id '%.100s' not found.", id);
	kvb_error_send(conn, &error, false);
}

/* Each path has one method here. */
static const struct {
	const char *path, *method;
	route_fn *fn;
} routes[] = {
	{"/v1/completions", "POST", post_completions},
	{"/v1/chat/completions", "POST", post_chat},
	{"/invocations", "POST", post_invocations},
	{"/v1/messages", "POST", post_messages},
	{"/v1/messages/count_tokens", "POST", kvb_count_tokens},
	{"/v1/responses", "POST", post_responses},
	{"/v1/chat/completions/render", "POST", post_render_chat},
	{"/v1/completions/render", "POST", post_render_completions},
	{"/v1/models", "GET", get_models},
	{"/health", "GET", get_health},
	{"/ping", "GET", get_health},
	{"/load", "GET", get_load},
	{"/metrics", "GET", get_metrics},
	{"/version", "GET", get_version},
	{"/kv_event_sources", "GET", get_event_sources},
	{"/query", "GET", kvb_transfer_query},
	{"/tokenize", "POST", post_tokenize},
	{"/detokenize", "POST", post_detokenize},
	{"/reset_prefix_cache", "POST", post_reset},
	{"/sleep", "POST", post_sleep},
	{"/wake_up", "POST", post_wake_up},
	{"/is_sleeping", "GET", get_is_sleeping},
	{"/pause", "POST", post_pause},
	{"/resume", "POST", post_resume},
	{"/is_paused", "GET", get_is_paused},
};

static bool is_preflight(const struct kvb_request *request)
{
	const char *value;
	size_t len;

	return strcmp(request->method, "OPTIONS") == 0 &&
	       kvb_request_header(request, "origin", &value, &len) &&
	       kvb_request_header(request, "access-control-request-method", &value, &len);
}

static void reply_detail(struct kvb_conn *conn, int status, const char *allow, const char *text)
{
	char fields[64], body[64];
	struct kvb_reply reply = {.status = status, .content_type = "application/json"};
	int len = snprintf(body, sizeof(body), "{\"detail\":\"%s\"}", text);

	if (allow != NULL) {
		snprintf(fields, sizeof(fields), "allow: %s\r\n", allow);
		reply.before_length = fields;
	}
	kvb_http_reply(conn, &reply, body, (size_t)len);
}

/* Cross-origin access is off, as in vLLM by default. */
static void reply_preflight(struct kvb_conn *conn)
{
	static const char text[] = "Disallowed CORS origin";
	struct kvb_reply reply = {.status = 400,
		.content_type = "text/plain; charset=utf-8",
		.vary = "Origin, Access-Control-Request-Method, Access-Control-Request-Headers, "
			"Access-Control-Request-Private-Network",
		.before_length = "access-control-allow-methods: DELETE, GET, HEAD, OPTIONS, PATCH, "
				 "POST, PUT, "
				 "QUERY\r\naccess-control-max-age: 600\r\n"};

	kvb_http_reply(conn, &reply, text, sizeof(text) - 1);
}

void kvb_routes_request(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	if (strncmp(request->path, "/sim/", 5) == 0) {
		kvb_admin_request(worker, conn, request);
		return;
	}
	if (strncmp(request->path, "/v1/responses/", 14) == 0 &&
		strcmp(request->method, "GET") == 0) {
		get_response(worker, conn, request);
		return;
	}
	if (is_preflight(request)) {
		reply_preflight(conn);
		return;
	}
	for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
		if (strcmp(routes[i].path, request->path) != 0)
			continue;
		if (strcmp(routes[i].method, request->method) == 0)
			routes[i].fn(worker, conn, request);
		else
			reply_detail(conn, 405, routes[i].method, "Method Not Allowed");
		return;
	}
	reply_detail(conn, 404, NULL, "Not Found");
}
