/*
 * sim_api_responses.c - POST /v1/responses.
 *
 * Each event carries a sequence number, and the whole response travels at the beginning and at the
 * end. A worker remembers the last responses that it made (sim_worker.h): previous_response_id
 * must name one of them, and GET /v1/responses/ID gives it back, so that a test sees whether a
 * router finds the worker that has it. The earlier turn itself is not put before the prompt.
 */
#include "bench/sim/sim_api.h"
#include "bench/sim/sim_nixl.h"
#include "bench/sim/sim_openai.h"
#include "bench/sim/sim_prompt.h"
#include "bench/sim/sim_worker.h"

/* Renders the items of a list: messages, with or without a type, and other items that have
 * content. */
static bool render_items(struct kvb_tokens *out, const json_t *items)
{
	size_t i;
	json_t *item;

	json_array_foreach(items, i, item)
	{
		json_t *role = json_object_get(item, "role");

		if (!json_is_object(item) ||
			!kvb_prompt_message(
				out, json_is_string(role) ? json_string_value(role) : "tool", item))
			return false;
	}
	return true;
}

static bool render(struct kvb_tokens *out, const json_t *body)
{
	json_t *input = json_object_get(body, "input");
	json_t *instructions = json_object_get(body, "instructions");

	kvb_prompt_tools(out, json_object_get(body, "tools"));
	if (json_is_string(instructions)) {
		kvb_prompt_role(out, "system", NULL);
		kvb_prompt_content(out, instructions);
		kvb_tokens_add(out, KVB_TOKEN_END);
	}
	if (json_is_string(input)) {
		kvb_prompt_role(out, "user", NULL);
		kvb_prompt_content(out, input);
		kvb_tokens_add(out, KVB_TOKEN_END);
	} else if (!json_is_array(input) || !render_items(out, input)) {
		return false;
	}
	kvb_prompt_generation(out);
	return true;
}

static bool responses_read(struct kvb_exchange *x, struct kvb_error *error)
{
	json_t *previous = json_object_get(x->body, "previous_response_id");

	if (json_object_get(x->body, "input") == NULL) {
		kvb_error_missing(error, "input", (unsigned)json_object_size(x->body));
		return false;
	}
	if (json_is_string(previous) &&
		kvb_worker_response(x->worker, json_string_value(previous)) == NULL) {
		kvb_error_set(error, 404, "invalid_request_error", "response_id",
			"Response with id '%.100s' not found.", json_string_value(previous));
		return false;
	}
	if (!kvb_read_limit(x, "max_output_tokens", error) ||
		kvb_exchange_add_prompts(x, 1) == NULL)
		return false;
	if (render(x->prompts, x->body))
		return true;
	kvb_error_type(error, "input", "string");
	return false;
}

static void add_number(struct kvb_exchange *x, const char *key, double otherwise)
{
	json_t *value = json_object_get(x->body, key);

	kvb_buf_printf(&x->out, "\"%s\":", key);
	kvb_buf_number(&x->out, json_is_number(value) ? json_number_value(value) : otherwise);
	kvb_buf_text(&x->out, ",");
}

static void add_value(struct kvb_exchange *x, const char *key, const char *otherwise)
{
	json_t *value = json_object_get(x->body, key);
	char *text = value == NULL ? NULL : json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);

	kvb_buf_printf(&x->out, "\"%s\":%s,", key, text == NULL ? otherwise : text);
	free(text);
}

static void add_text(struct kvb_exchange *x)
{
	const struct kvb_seq *seq = x->choices[0].seq;

	kvb_buf_json_tokens(
		&x->out, seq->tokens + seq->prompt_len, seq->total_len - seq->prompt_len);
}

static void add_message_id(struct kvb_exchange *x)
{
	kvb_buf_printf(&x->out, "\"msg_%s\"", x->id);
}

/* Writes the finished message. */
static void add_item(struct kvb_exchange *x)
{
	kvb_buf_text(&x->out, "{\"id\":");
	add_message_id(x);
	kvb_buf_text(&x->out, ",\"content\":[{\"annotations\":[],\"text\":");
	add_text(x);
	kvb_buf_text(&x->out,
		",\"type\":\"output_text\",\"logprobs\":null}],\"role\":\"assistant\","
		"\"status\":\"completed\",\"type\":\"message\",\"phase\":null}");
}

static void add_usage(struct kvb_exchange *x)
{
	uint32_t prompt = kvb_exchange_prompt_tokens(x), made = kvb_exchange_completion_tokens(x);

	kvb_buf_printf(&x->out,
		"{\"input_tokens\":%u,\"input_tokens_details\":{\"cached_tokens\":%u,"
		"\"cache_write_tokens\":0,\"input_tokens_per_turn\":[],\"cached_tokens_per_turn\":["
		"]},"
		"\"output_tokens\":%u,\"output_tokens_details\":{\"reasoning_tokens\":0,"
		"\"tool_output_tokens\":0,\"output_tokens_per_turn\":[],"
		"\"tool_output_tokens_per_turn\":[]},\"total_tokens\":%u}",
		prompt,
		x->worker->options->prompt_tokens_details ? kvb_exchange_cached_tokens(x) : 0, made,
		prompt + made);
}

static void add_response(struct kvb_exchange *x, bool finished)
{
	json_t *tools = json_object_get(x->body, "tools");
	bool cut = finished && !x->natural_end;

	kvb_buf_printf(&x->out,
		"{\"id\":\"resp_%s\",\"created_at\":%lld,\"incomplete_details\":%s,", x->id,
		(long long)x->created, cut ? "{\"reason\":\"max_output_tokens\"}" : "null");
	add_value(x, "instructions", "null");
	add_value(x, "metadata", "null");
	kvb_buf_text(&x->out, "\"model\":");
	kvb_buf_json(&x->out, x->model, strlen(x->model));
	kvb_buf_text(&x->out, ",\"object\":\"response\",\"output\":[");
	if (finished)
		add_item(x);
	kvb_buf_text(&x->out, "],\"parallel_tool_calls\":true,");
	add_number(x, "temperature", 1);
	add_value(x, "tool_choice", json_array_size(tools) > 0 ? "\"auto\"" : "\"none\"");
	add_value(x, "tools", "[]");
	add_number(x, "top_p", 1);
	kvb_buf_printf(&x->out, "\"background\":false,\"max_output_tokens\":%u,", x->max_new);
	kvb_buf_text(&x->out, "\"max_tool_calls\":null,");
	add_value(x, "previous_response_id", "null");
	kvb_buf_text(&x->out, "\"prompt\":null,\"reasoning\":null,\"service_tier\":\"auto\",");
	kvb_buf_printf(&x->out,
		"\"status\":\"%s\",\"text\":null,\"top_logprobs\":null,\"truncation\":\"disabled\","
		"\"usage\":",
		!finished ? "in_progress"
		: cut     ? "incomplete"
			  : "completed");
	if (finished)
		add_usage(x);
	else
		kvb_buf_text(&x->out, "null");
	kvb_buf_text(&x->out,
		",\"user\":null,\"presence_penalty\":0.0,\"frequency_penalty\":0.0,"
		"\"kv_transfer_params\":");
	if (finished)
		kvb_nixl_answer(x, &x->out);
	else
		kvb_buf_text(&x->out, "null");
	kvb_buf_text(&x->out,
		",\"ec_transfer_params\":null,\"input_messages\":null,\"output_messages\":null}");
}

static void responses_plain(struct kvb_exchange *x)
{
	add_response(x, true);
	kvb_worker_keep_response(x->worker, x->id, x->out.data, x->out.len);
}

static void begin_event(struct kvb_exchange *x, const char *type)
{
	kvb_buf_printf(&x->out, "event: %s\ndata: {", type);
}

static void end_event(struct kvb_exchange *x, const char *type, bool content)
{
	kvb_buf_printf(&x->out, "\"sequence_number\":%u,\"type\":\"%s\"}\n\n", x->sequence++, type);
	kvb_exchange_event(x, content);
}

static void send_whole(struct kvb_exchange *x, const char *type, bool finished)
{
	size_t from;

	begin_event(x, type);
	kvb_buf_text(&x->out, "\"response\":");
	from = x->out.len;
	add_response(x, finished);
	if (finished)
		kvb_worker_keep_response(x->worker, x->id, x->out.data + from, x->out.len - from);
	kvb_buf_text(&x->out, ",");
	end_event(x, type, false);
}

static void responses_accepted(struct kvb_exchange *x)
{
	send_whole(x, "response.created", false);
	send_whole(x, "response.in_progress", false);
}

static void send_item_added(struct kvb_exchange *x)
{
	begin_event(x, "response.output_item.added");
	kvb_buf_text(&x->out, "\"item\":{\"id\":");
	add_message_id(x);
	kvb_buf_text(&x->out, ",\"content\":[],\"role\":\"assistant\",\"status\":\"in_progress\","
			      "\"type\":\"message\",\"phase\":null},\"output_index\":0,");
	end_event(x, "response.output_item.added", false);
	begin_event(x, "response.content_part.added");
	kvb_buf_text(&x->out, "\"content_index\":0,\"item_id\":");
	add_message_id(x);
	kvb_buf_text(&x->out, ",\"output_index\":0,\"part\":{\"annotations\":[],\"text\":\"\","
			      "\"type\":\"output_text\",\"logprobs\":[]},");
	end_event(x, "response.content_part.added", false);
}

static void responses_token(struct kvb_exchange *x, const struct kvb_token_event *event)
{
	if (event->opens)
		send_item_added(x);
	begin_event(x, "response.output_text.delta");
	kvb_buf_text(&x->out, "\"content_index\":0,\"delta\":");
	kvb_buf_json_tokens(&x->out, &event->token, 1);
	kvb_buf_text(&x->out, ",\"item_id\":");
	add_message_id(x);
	kvb_buf_text(&x->out, ",\"logprobs\":[],\"output_index\":0,");
	end_event(x, "response.output_text.delta", true);
}

static void responses_end(struct kvb_exchange *x)
{
	begin_event(x, "response.output_text.done");
	kvb_buf_text(&x->out, "\"content_index\":0,\"item_id\":");
	add_message_id(x);
	kvb_buf_printf(&x->out,
		",\"logprobs\":[],\"output_index\":0,\"sequence_number\":%u,\"text\":",
		x->sequence++);
	add_text(x);
	kvb_buf_text(&x->out, ",\"type\":\"response.output_text.done\"}\n\n");
	kvb_exchange_event(x, false);
	begin_event(x, "response.content_part.done");
	kvb_buf_text(&x->out, "\"content_index\":0,\"item_id\":");
	add_message_id(x);
	kvb_buf_text(&x->out, ",\"output_index\":0,\"part\":{\"annotations\":[],\"text\":");
	add_text(x);
	kvb_buf_text(&x->out, ",\"type\":\"output_text\",\"logprobs\":null},");
	end_event(x, "response.content_part.done", false);
	begin_event(x, "response.output_item.done");
	kvb_buf_text(&x->out, "\"item\":");
	add_item(x);
	kvb_buf_text(&x->out, ",\"output_index\":0,");
	end_event(x, "response.output_item.done", false);
	send_whole(x, "response.completed", true);
}

/* Ends the stream without an error event, as vLLM does. */
static void responses_failed(struct kvb_exchange *x, bool opened)
{
	(void)x;
	(void)opened;
}

const struct kvb_api kvb_api_responses = {
	.read = responses_read,
	.plain = responses_plain,
	.accepted = responses_accepted,
	.token = responses_token,
	.end = responses_end,
	.failed = responses_failed,
};
