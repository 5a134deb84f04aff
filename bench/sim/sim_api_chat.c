/*
 * sim_api_chat.c - POST /v1/chat/completions.
 *
 * If the request forces a tool (tool_choice "required" or a named function), the answer is a call
 * of it with empty arguments, so that clients' tool loops can be tested; otherwise it is text.
 */
#include "bench/sim/sim_api.h"
#include "bench/sim/sim_nixl.h"
#include "bench/sim/sim_openai.h"
#include "bench/sim/sim_prompt.h"
#include "bench/sim/sim_worker.h"

/* The tool that the answer must call, or NULL. Borrowed from the request. */
static const char *forced_tool(const json_t *body)
{
	json_t *choice = json_object_get(body, "tool_choice");
	json_t *tool = json_array_get(json_object_get(body, "tools"), 0);
	json_t *named = json_object_get(json_object_get(choice, "function"), "name");

	if (json_is_string(named))
		return json_string_value(named);
	if (!json_is_string(choice) || strcmp(json_string_value(choice), "required") != 0)
		return NULL;
	return json_string_value(json_object_get(json_object_get(tool, "function"), "name"));
}

static bool chat_read(struct kvb_exchange *x, struct kvb_error *error)
{
	json_t *messages = json_object_get(x->body, "messages");

	if (messages == NULL) {
		kvb_error_missing(error, "messages", (unsigned)json_object_size(x->body));
		return false;
	}
	if (!kvb_read_limit(x, "max_tokens", error) ||
		!kvb_read_limit(x, "max_completion_tokens", error) || !kvb_read_n(x, error))
		return false;
	if (kvb_exchange_add_prompts(x, 1) == NULL)
		return false;
	x->tool = forced_tool(x->body);
	kvb_prompt_tools(x->prompts, json_object_get(x->body, "tools"));
	if (!json_is_array(messages) || !kvb_prompt_messages(x->prompts, messages)) {
		kvb_error_type(error, "messages", "list");
		return false;
	}
	kvb_prompt_generation(x->prompts);
	return true;
}

static void add_start(struct kvb_exchange *x, const char *object)
{
	kvb_buf_printf(&x->out,
		"{\"id\":\"chatcmpl-%s\",\"object\":\"%s\",\"created\":%lld,\"model\":", x->id,
		object, (long long)x->created);
	kvb_buf_json(&x->out, x->model, strlen(x->model));
	kvb_buf_text(&x->out, ",\"choices\":[");
}

static void add_tool_call(struct kvb_exchange *x, bool streamed)
{
	kvb_buf_printf(&x->out,
		"\"tool_calls\":[{\"id\":\"chatcmpl-tool-%016llx\",\"type\":\"function\",",
		(unsigned long long)kvb_worker_random(x->worker));
	kvb_buf_text(&x->out,
		streamed ? "\"index\":0,\"function\":{\"name\":" : "\"function\":{\"name\":");
	kvb_buf_json(&x->out, x->tool, strlen(x->tool));
	kvb_buf_text(&x->out, ",\"arguments\":\"{}\"}}]");
}

static void add_choice(struct kvb_exchange *x, const struct kvb_choice *choice)
{
	const struct kvb_seq *seq = choice->seq;

	kvb_buf_printf(&x->out, "%s{\"index\":%u,\"message\":{\"role\":\"assistant\",\"content\":",
		choice->index > 0 ? "," : "", choice->index);
	if (x->tool != NULL)
		kvb_buf_text(&x->out, "null");
	else
		kvb_buf_json_tokens(
			&x->out, seq->tokens + seq->prompt_len, seq->total_len - seq->prompt_len);
	kvb_buf_text(&x->out,
		",\"refusal\":null,\"annotations\":null,\"audio\":null,\"function_call\":null,");
	if (x->tool != NULL) {
		add_tool_call(x, false);
		kvb_buf_text(&x->out, ",");
	}
	kvb_buf_printf(&x->out,
		"\"reasoning\":null},\"logprobs\":null,\"finish_reason\":\"%s\",\"stop_reason\":"
		"null,"
		"\"token_ids\":",
		kvb_finish_reason(x));
	kvb_add_ids(x, x->return_ids, seq->tokens + seq->prompt_len, seq->total_len - seq->prompt_len);
	kvb_buf_text(&x->out, ",\"routed_experts\":null}");
}

static void add_prompt_ids(struct kvb_exchange *x)
{
	kvb_buf_text(&x->out, "\"prompt_token_ids\":");
	kvb_add_ids(x, x->return_ids, x->prompts[0].ids, x->prompts[0].count);
	kvb_buf_text(&x->out, ",\"prompt_text\":null");
}

static void chat_plain(struct kvb_exchange *x)
{
	add_start(x, "chat.completion");
	for (uint32_t i = 0; i < x->choice_count; i++)
		add_choice(x, &x->choices[i]);
	kvb_buf_printf(&x->out, "],\"service_tier\":null,\"system_fingerprint\":\"%s\",",
		x->worker->fingerprint);
	kvb_add_usage_plain(x, true);
	kvb_buf_text(&x->out, ",\"prompt_logprobs\":null,");
	add_prompt_ids(x);
	kvb_buf_text(&x->out,
		",\"kv_transfer_params\":");
	kvb_nixl_answer(x, &x->out);
	kvb_buf_text(&x->out, ",\"ec_transfer_params\":null,\"metrics\":null}");
}

/* Sends an event per choice with the role of its message, before the first token of any choice. */
static void send_roles(struct kvb_exchange *x)
{
	for (uint32_t i = 0; i < x->choice_count; i++) {
		kvb_buf_text(&x->out, "data: ");
		add_start(x, "chat.completion.chunk");
		kvb_buf_printf(&x->out,
			"{\"index\":%u,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},"
			"\"logprobs\":null,\"finish_reason\":null}]",
			i);
		if (x->continuous_usage)
			kvb_add_usage_running(x, NULL, true);
		kvb_buf_text(&x->out, ",");
		add_prompt_ids(x);
		kvb_buf_text(&x->out, "}\n\n");
		kvb_exchange_event(x, false);
	}
}

static void add_delta(struct kvb_exchange *x, const struct kvb_token_event *event)
{
	kvb_buf_text(&x->out, "{");
	if (x->tool == NULL) {
		kvb_buf_text(&x->out, "\"content\":");
		kvb_buf_json_tokens(&x->out, &event->token, 1);
	} else if (event->first) {
		add_tool_call(x, true);
	}
	kvb_buf_text(&x->out, "}");
}

static void chat_token(struct kvb_exchange *x, const struct kvb_token_event *event)
{
	const struct kvb_choice *choice = event->choice;

	if (event->opens)
		send_roles(x);
	if (x->tool != NULL && !event->first && !event->last)
		return; /* one event has the whole call; its later tokens have none */
	kvb_buf_text(&x->out, "data: ");
	add_start(x, "chat.completion.chunk");
	kvb_buf_printf(&x->out, "{\"index\":%u,\"delta\":", choice->index);
	add_delta(x, event);
	kvb_buf_text(&x->out, ",\"logprobs\":null,\"finish_reason\":");
	if (event->last)
		kvb_buf_printf(&x->out, "\"%s\",\"stop_reason\":null", kvb_finish_reason(x));
	else
		kvb_buf_text(&x->out, "null");
	kvb_buf_text(&x->out, ",\"token_ids\":");
	kvb_add_ids(x, x->return_ids, &event->token, 1);
	kvb_buf_text(&x->out, "}]");
	if (x->continuous_usage)
		kvb_add_usage_running(x, choice, true);
	kvb_add_fingerprint_at_end(x);
	kvb_buf_text(&x->out, "}\n\n");
	kvb_exchange_event(x, true);
}

static void chat_end(struct kvb_exchange *x)
{
	if (x->include_usage) {
		kvb_buf_text(&x->out, "data: ");
		add_start(x, "chat.completion.chunk");
		kvb_buf_text(&x->out, "]");
		kvb_add_usage_last(x, true);
		kvb_exchange_event(x, false);
	}
	kvb_send_done(x);
}

static void chat_failed(struct kvb_exchange *x, bool opened)
{
	if (!opened)
		send_roles(x);
	kvb_buf_error_event(&x->out);
	kvb_exchange_event(x, false);
	kvb_send_done(x);
}

const struct kvb_api kvb_api_chat = {
	.read = chat_read,
	.plain = chat_plain,
	.token = chat_token,
	.end = chat_end,
	.failed = chat_failed,
};
