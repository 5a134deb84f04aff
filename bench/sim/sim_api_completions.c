/*
 * sim_api_completions.c - POST /v1/completions.
 *
 * `prompt` is a string, a list of strings, a list of token ids or a list of such lists. With a
 * batch, choices are numbered prompt by prompt.
 */
#include "bench/sim/sim_api.h"
#include "bench/sim/sim_nixl.h"
#include "bench/sim/sim_openai.h"
#include "bench/sim/sim_prompt.h"
#include "bench/sim/sim_worker.h"

#define DEFAULT_TOKENS 16 /* OpenAI's default of max_tokens */

/* Reads one prompt: a string or a list of ids. */
static bool read_prompt(struct kvb_tokens *out, const json_t *prompt, struct kvb_error *error)
{
	json_int_t bad = -1;

	if (json_is_string(prompt)) {
		kvb_prompt_content(out, prompt);
	} else if (!kvb_prompt_ids(out, prompt, &bad)) {
		if (bad == -1)
			kvb_error_type(error, "prompt", "integer");
		else
			kvb_error_set(error, 400, "BadRequestError", "",
				"Token id %lld is out of vocabulary", (long long)bad);
		return false;
	}
	if (out->count > 0)
		return true;
	kvb_error_set(error, 400, "BadRequestError", "prompt",
		"Either prompt or prompt_embeds must be provided and non-empty.");
	return false;
}

static bool read_prompts(struct kvb_exchange *x, struct kvb_error *error)
{
	json_t *prompt = json_object_get(x->body, "prompt");
	json_t *first = json_array_get(prompt, 0);
	bool batch = json_is_array(prompt) && !json_is_integer(first) && first != NULL;
	uint32_t count = batch ? (uint32_t)json_array_size(prompt) : 1;

	if (prompt == NULL || json_is_null(prompt)) {
		kvb_error_missing(error, "prompt", (unsigned)json_object_size(x->body));
		return false;
	}
	if (!json_is_string(prompt) && !json_is_array(prompt)) {
		kvb_error_type(error, "prompt", "string");
		return false;
	}
	if (kvb_exchange_add_prompts(x, count) == NULL)
		return false;
	for (uint32_t i = 0; i < count; i++) {
		json_t *one = batch ? json_array_get(prompt, i) : prompt;

		if (!json_is_string(one) && !json_is_array(one)) {
			kvb_error_type(error, "prompt", "string");
			return false;
		}
		if (!read_prompt(&x->prompts[i], one, error))
			return false;
	}
	return true;
}

static bool completions_read(struct kvb_exchange *x, struct kvb_error *error)
{
	x->echo = json_is_true(json_object_get(x->body, "echo"));
	x->max_new = DEFAULT_TOKENS;
	if (!kvb_read_limit(x, "max_tokens", error) || !kvb_read_n(x, error) ||
		!read_prompts(x, error))
		return false;
	x->natural_end = false; /* the default counts as a limit, too */
	if (x->max_new == DEFAULT_TOKENS && json_object_get(x->body, "max_tokens") == NULL)
		kvb_clip_default(x);
	return true;
}

static void add_prompt_ids(struct kvb_exchange *x, const struct kvb_choice *choice, bool wanted)
{
	kvb_buf_text(&x->out, "\"prompt_token_ids\":");
	kvb_add_ids(x, wanted, choice->seq->tokens, choice->seq->prompt_len);
}

static void add_choice(struct kvb_exchange *x, const struct kvb_choice *choice)
{
	const struct kvb_seq *seq = choice->seq;
	uint32_t from = x->echo ? 0 : seq->prompt_len;

	kvb_buf_printf(
		&x->out, "%s{\"index\":%u,\"text\":", choice->index > 0 ? "," : "", choice->index);
	kvb_buf_json_tokens(&x->out, seq->tokens + from, seq->total_len - from);
	kvb_buf_printf(&x->out,
		",\"logprobs\":null,\"finish_reason\":\"%s\",\"stop_reason\":null,\"token_ids\":",
		kvb_finish_reason(x));
	kvb_add_ids(x, x->return_ids, seq->tokens + seq->prompt_len, seq->total_len - seq->prompt_len);
	kvb_buf_text(&x->out, ",\"prompt_logprobs\":null,");
	add_prompt_ids(x, choice, x->return_ids);
	kvb_buf_text(&x->out, ",\"routed_experts\":null}");
}

static void add_start(struct kvb_exchange *x)
{
	kvb_buf_printf(&x->out,
		"{\"id\":\"cmpl-%s\",\"object\":\"text_completion\",\"created\":%lld,\"model\":",
		x->id, (long long)x->created);
	kvb_buf_json(&x->out, x->model, strlen(x->model));
	kvb_buf_text(&x->out, ",\"choices\":[");
}

static void completions_plain(struct kvb_exchange *x)
{
	add_start(x);
	for (uint32_t i = 0; i < x->choice_count; i++)
		add_choice(x, &x->choices[i]);
	kvb_buf_printf(&x->out, "],\"service_tier\":null,\"system_fingerprint\":\"%s\",",
		x->worker->fingerprint);
	kvb_add_usage_plain(x, false);
	kvb_buf_text(&x->out,
		",\"kv_transfer_params\":");
	kvb_nixl_answer(x, &x->out);
	kvb_buf_text(&x->out, ",\"ec_transfer_params\":null,\"metrics\":null}");
}

static void completions_token(struct kvb_exchange *x, const struct kvb_token_event *event)
{
	const struct kvb_choice *choice = event->choice;
	const struct kvb_seq *seq = choice->seq;
	bool whole = x->echo && event->first;

	kvb_buf_text(&x->out, "data: ");
	add_start(x);
	kvb_buf_printf(&x->out, "{\"index\":%u,\"text\":", choice->index);
	kvb_buf_json_tokens(&x->out, whole ? seq->tokens : seq->tokens + seq->total_len - 1,
		whole ? seq->total_len : 1);
	kvb_buf_text(&x->out, ",\"logprobs\":null,\"finish_reason\":");
	if (event->last)
		kvb_buf_printf(&x->out, "\"%s\"", kvb_finish_reason(x));
	else
		kvb_buf_text(&x->out, "null");
	kvb_buf_text(&x->out, ",\"stop_reason\":null,");
	add_prompt_ids(x, choice, x->return_ids && event->first);
	kvb_buf_text(&x->out, ",\"token_ids\":");
	kvb_add_ids(x, x->return_ids, &event->token, 1);
	kvb_buf_text(&x->out, "}]");
	if (x->continuous_usage)
		kvb_add_usage_running(x, choice, false);
	kvb_add_fingerprint_at_end(x);
	kvb_buf_text(&x->out, "}\n\n");
	kvb_exchange_event(x, true);
}

static void completions_end(struct kvb_exchange *x)
{
	if (x->include_usage) {
		kvb_buf_text(&x->out, "data: ");
		add_start(x);
		kvb_buf_text(&x->out, "]");
		kvb_add_usage_last(x, false);
		kvb_exchange_event(x, false);
	}
	kvb_send_done(x);
}

static void completions_failed(struct kvb_exchange *x, bool opened)
{
	(void)opened;
	kvb_buf_error_event(&x->out);
	kvb_exchange_event(x, false);
	kvb_send_done(x);
}

const struct kvb_api kvb_api_completions = {
	.read = completions_read,
	.plain = completions_plain,
	.token = completions_token,
	.end = completions_end,
	.failed = completions_failed,
};
