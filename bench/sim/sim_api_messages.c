/*
 * sim_api_messages.c - POST /v1/messages (Anthropic) and its count_tokens.
 *
 * Usage counts differ from OpenAI's: input_tokens leaves out what was cached, save in
 * message_start, which gives the whole prompt before anything is known.
 */
#include "bench/sim/sim_api.h"
#include "bench/sim/sim_nixl.h"
#include "bench/sim/sim_transfer.h"
#include "bench/sim/sim_openai.h"
#include "bench/sim/sim_prompt.h"
#include "bench/sim/sim_routes.h"
#include "bench/sim/sim_worker.h"

/* Renders tools, system and messages in this order, whatever the order of the keys. */
static bool render(struct kvb_tokens *out, const json_t *body, struct kvb_error *error)
{
	json_t *messages = json_object_get(body, "messages"),
	       *system = json_object_get(body, "system");

	if (messages == NULL) {
		kvb_error_missing(error, "messages", (unsigned)json_object_size(body));
		return false;
	}
	kvb_prompt_tools(out, json_object_get(body, "tools"));
	if (system != NULL && !json_is_null(system)) {
		kvb_prompt_role(out, "system", NULL);
		if (!kvb_prompt_content(out, system)) {
			kvb_error_type(error, "system", "string");
			return false;
		}
		kvb_tokens_add(out, KVB_TOKEN_END);
	}
	if (!json_is_array(messages) || !kvb_prompt_messages(out, messages)) {
		kvb_error_type(error, "messages", "list");
		return false;
	}
	kvb_prompt_generation(out);
	return true;
}

static bool messages_read(struct kvb_exchange *x, struct kvb_error *error)
{
	if (json_object_get(x->body, "messages") != NULL &&
		json_object_get(x->body, "max_tokens") == NULL) {
		kvb_error_missing(error, "max_tokens", (unsigned)json_object_size(x->body));
		return false;
	}
	return kvb_read_limit(x, "max_tokens", error) && kvb_exchange_add_prompts(x, 1) != NULL &&
	       render(x->prompts, x->body, error);
}

static void add_usage(struct kvb_exchange *x)
{
	uint32_t cached = kvb_exchange_cached_tokens(x);
	bool details = x->worker->options->prompt_tokens_details;

	kvb_buf_printf(&x->out, "\"usage\":{\"input_tokens\":%u,\"output_tokens\":%u",
		kvb_exchange_prompt_tokens(x) - (details ? cached : 0),
		kvb_exchange_completion_tokens(x));
	if (details)
		kvb_buf_printf(&x->out,
			",\"cache_creation_input_tokens\":%u,\"cache_read_input_tokens\":%u",
			kvb_exchange_created_tokens(x), cached);
	kvb_buf_text(&x->out, "}");
}

static const char *stop_reason(const struct kvb_exchange *x)
{
	return x->natural_end ? "end_turn" : "max_tokens";
}

static void messages_plain(struct kvb_exchange *x)
{
	const struct kvb_seq *seq = x->choices[0].seq;

	kvb_buf_printf(&x->out,
		"{\"id\":\"chatcmpl-%s\",\"type\":\"message\",\"role\":\"assistant\",\"content\":["
		"{\"type\":\"text\",\"text\":",
		x->id);
	kvb_buf_json_tokens(
		&x->out, seq->tokens + seq->prompt_len, seq->total_len - seq->prompt_len);
	kvb_buf_text(&x->out, "}],\"model\":");
	kvb_buf_json(&x->out, x->model, strlen(x->model));
	kvb_buf_printf(&x->out, ",\"stop_reason\":\"%s\",", stop_reason(x));
	add_usage(x);
	if (kvb_transfer_answers(x)) {
		kvb_buf_text(&x->out, ",\"kv_transfer_params\":");
		kvb_nixl_answer(x, &x->out);
	}
	kvb_buf_text(&x->out, "}");
}

static void send_start(struct kvb_exchange *x)
{
	kvb_buf_printf(&x->out,
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":"
		"\"chatcmpl-%s\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],"
		"\"model\":",
		x->id);
	kvb_buf_json(&x->out, x->model, strlen(x->model));
	kvb_buf_printf(&x->out,
		",\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{\"input_tokens\":%u,"
		"\"output_tokens\":0}}}\n\n",
		kvb_exchange_prompt_tokens(x));
	kvb_exchange_event(x, false);
}

static void messages_token(struct kvb_exchange *x, const struct kvb_token_event *event)
{
	if (event->opens) {
		send_start(x);
		kvb_buf_text(&x->out,
			"event: content_block_start\ndata: {\"type\":"
			"\"content_block_start\",\"content_block\":{\"type\":\"text\","
			"\"text\":\"\"},\"index\":0}\n\n");
		kvb_exchange_event(x, false);
	}
	kvb_buf_text(&x->out, "event: content_block_delta\ndata: {\"type\":\"content_block_delta\","
			      "\"delta\":{\"type\":\"text_delta\",\"text\":");
	kvb_buf_json_tokens(&x->out, &event->token, 1);
	kvb_buf_text(&x->out, "},\"index\":0}\n\n");
	kvb_exchange_event(x, true);
}

static void messages_end(struct kvb_exchange *x)
{
	kvb_buf_text(&x->out, "event: content_block_stop\ndata: "
			      "{\"type\":\"content_block_stop\",\"index\":0}\n\n");
	kvb_exchange_event(x, false);
	kvb_buf_printf(&x->out,
		"event: message_delta\ndata: "
		"{\"type\":\"message_delta\",\"delta\":{\"stop_reason\":"
		"\"%s\",\"stop_sequence\":null},",
		stop_reason(x));
	add_usage(x);
	kvb_buf_text(&x->out, "}\n\n");
	kvb_exchange_event(x, false);
	kvb_buf_text(&x->out, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
	kvb_exchange_event(x, false);
}

static void messages_failed(struct kvb_exchange *x, bool opened)
{
	if (!opened)
		send_start(x);
	kvb_buf_text(&x->out, "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":"
			      "\"internal_error\",\"message\":\"Internal server error\"}}\n\n");
	kvb_exchange_event(x, false);
}

void kvb_count_tokens(
	struct kvb_worker *worker, struct kvb_conn *conn, const struct kvb_request *request)
{
	struct kvb_error error;
	struct kvb_tokens tokens = {0};
	struct kvb_buf out = {0};
	json_t *body = kvb_openai_parse(request, &error);
	const char *model;
	bool lora;

	if (body == NULL || !kvb_openai_model(worker, body, &model, &lora, &error) ||
		!render(&tokens, body, &error)) {
		kvb_error_send(conn, &error, error.status == 404);
	} else {
		kvb_buf_printf(&out,
			"{\"input_tokens\":%zu,\"context_management\":{\"original_input_tokens\":%"
			"zu}}",
			tokens.count, tokens.count);
		kvb_reply_json(conn, 200, &out);
	}
	kvb_tokens_free(&tokens);
	json_decref(body);
}

const struct kvb_api kvb_api_messages = {
	.anthropic_errors = true,
	.read = messages_read,
	.plain = messages_plain,
	.token = messages_token,
	.end = messages_end,
	.failed = messages_failed,
};
