/*
 * sim_render.c - POST /v1/completions/render and /v1/chat/completions/render.
 *
 * vLLM answers with the tokens that a prompt becomes, without generating, if it was started with
 * --enable-scale-out; else with 403. Routers that compare token ids ask for them here before they
 * choose a worker. Only what kvsim's requests have is returned: no images, no sampling beyond
 * lengths.
 */
#include <stdlib.h>
#include <string.h>

#include "bench/sim/sim_openai.h"
#include "bench/sim/sim_read.h"
#include "bench/sim/sim_routes.h"

static void reply_disabled(struct kvb_conn *conn)
{
	struct kvb_error error;

	kvb_error_set(&error, 403, "PermissionDeniedError", "",
		"Scale-out endpoints are disabled. Restart vllm serve with --enable-scale-out to "
		"enable them.");
	kvb_error_send(conn, &error, false);
}

/* Writes one prompt as vLLM's generate endpoint takes it. */
static void add_request(
	const struct kvb_exchange *x, const struct kvb_tokens *prompt, struct kvb_buf *out)
{
	const char *salt = json_string_value(json_object_get(x->body, "cache_salt"));
	bool chat = x->api == &kvb_api_chat;

	kvb_buf_printf(
		out, "{\"request_id\":\"%s-%s\",\"token_ids\":", chat ? "chatcmpl" : "cmpl", x->id);
	kvb_buf_ids(out, prompt->ids, prompt->count);
	kvb_buf_printf(out,
		",\"features\":null,\"sampling_params\":{\"n\":%u,\"max_tokens\":%u},\"model\":",
		x->n, x->max_new);
	kvb_buf_json(out, x->model, strlen(x->model));
	kvb_buf_printf(out, ",\"stream\":%s,\"cache_salt\":", x->stream ? "true" : "false");
	if (salt != NULL)
		kvb_buf_json(out, salt, strlen(salt));
	else
		kvb_buf_text(out, "null");
	kvb_buf_text(out, ",\"priority\":0,\"kv_transfer_params\":null}");
}

static bool read_request(
	struct kvb_exchange *x, const struct kvb_request *request, struct kvb_error *error)
{
	const char *model;

	x->body = kvb_openai_parse(request, error);
	if (x->body == NULL || !kvb_openai_model(x->worker, x->body, &model, &x->lora, error))
		return false;
	kvb_error_set(error, 500, "InternalServerError", "", "Out of memory");
	x->model = strdup(model);
	if (x->model == NULL || !kvb_read_common(x, error) || !kvb_read_lengths(x, error))
		return false;
	kvb_read_id(x, request);
	return true;
}

void kvb_render_request(struct kvb_worker *worker, struct kvb_conn *conn,
	const struct kvb_request *request, const struct kvb_api *api)
{
	struct kvb_exchange x = {.worker = worker,
		.conn = conn,
		.api = api,
		.n = 1,
		.natural_end = true,
		.max_new = worker->options->default_tokens};
	bool list = api == &kvb_api_completions; /* a request may have many prompts */
	struct kvb_buf out = {0};
	struct kvb_error error;

	if (!worker->options->scale_out) {
		reply_disabled(conn);
		return;
	}
	if (read_request(&x, request, &error)) {
		if (list)
			kvb_buf_text(&out, "[");
		for (uint32_t i = 0; i < x.prompt_count; i++) {
			if (i > 0)
				kvb_buf_text(&out, ",");
			add_request(&x, &x.prompts[i], &out);
		}
		if (list)
			kvb_buf_text(&out, "]");
		kvb_reply_json(conn, 200, &out);
	} else {
		kvb_error_send(conn, &error, false);
	}
	for (uint32_t i = 0; i < x.prompt_count; i++)
		kvb_tokens_free(&x.prompts[i]);
	free(x.prompts);
	free(x.model);
	json_decref(x.body);
}
