/*
 * sim_api.c - the parts that completions and chat have in common.
 */
#include "bench/sim/sim_api.h"
#include "bench/sim/sim_worker.h"

bool kvb_read_n(struct kvb_exchange *x, struct kvb_error *error)
{
	json_t *n = json_object_get(x->body, "n");

	if (n == NULL || json_is_null(n))
		return true;
	if (!json_is_integer(n)) {
		kvb_error_type(error, "n", "integer");
		return false;
	}
	if (json_integer_value(n) < 1 || json_integer_value(n) > 1024) {
		kvb_error_set(error, 400, "BadRequestError", "n", "n must be at least 1, got %lld.",
			(long long)json_integer_value(n));
		return false;
	}
	x->n = (uint32_t)json_integer_value(n);
	return true;
}

void kvb_clip_default(struct kvb_exchange *x)
{
	for (uint32_t i = 0; i < x->prompt_count; i++) {
		size_t len = x->prompts[i].count;
		uint32_t longest = x->worker->options->max_model_len;

		if (len < longest && x->max_new > longest - len)
			x->max_new = (uint32_t)(longest - len);
	}
}

const char *kvb_finish_reason(const struct kvb_exchange *x)
{
	if (x->tool != NULL)
		return "tool_calls";
	return x->natural_end ? "stop" : "length";
}

void kvb_add_ids(struct kvb_exchange *x, bool wanted, const uint32_t *ids, size_t count)
{
	if (wanted)
		kvb_buf_ids(&x->out, ids, count);
	else
		kvb_buf_text(&x->out, "null");
}

void kvb_send_done(struct kvb_exchange *x)
{
	kvb_buf_text(&x->out, "data: [DONE]\n\n");
	kvb_exchange_event(x, false);
}

static void add_counts(struct kvb_exchange *x, uint32_t completion)
{
	uint32_t prompt = kvb_exchange_prompt_tokens(x);

	kvb_buf_printf(&x->out,
		"{\"prompt_tokens\":%u,\"total_tokens\":%u,\"completion_tokens\":%u", prompt,
		prompt + completion, completion);
}

void kvb_add_usage_plain(struct kvb_exchange *x, bool chat)
{
	kvb_buf_text(&x->out, "\"usage\":");
	add_counts(x, kvb_exchange_completion_tokens(x));
	if (!x->worker->options->prompt_tokens_details)
		kvb_buf_text(&x->out, ",\"prompt_tokens_details\":null");
	else
		kvb_buf_printf(&x->out,
			",\"prompt_tokens_details\":{\"cached_tokens\":%u,\"created_cache_"
			"tokens\":",
			kvb_exchange_cached_tokens(x));
	if (x->worker->options->prompt_tokens_details && chat)
		kvb_buf_printf(
			&x->out, "%u,\"multimodal_tokens\":null}", kvb_exchange_created_tokens(x));
	else if (x->worker->options->prompt_tokens_details)
		kvb_buf_text(&x->out, "null,\"multimodal_tokens\":null}");
	kvb_buf_text(&x->out, ",\"completion_tokens_details\":null}");
}

void kvb_add_usage_running(struct kvb_exchange *x, const struct kvb_choice *choice, bool chat)
{
	uint32_t made = choice == NULL ? 0 : choice->seq->total_len - choice->seq->prompt_len;

	kvb_buf_text(&x->out, ",\"usage\":");
	add_counts(x, made);
	kvb_buf_text(&x->out, chat ? ",\"completion_tokens_details\":null}" : "}");
}

void kvb_add_usage_last(struct kvb_exchange *x, bool chat)
{
	kvb_buf_text(&x->out, ",\"usage\":");
	add_counts(x, kvb_exchange_completion_tokens(x));
	if (x->worker->options->prompt_tokens_details) {
		kvb_buf_printf(&x->out, ",\"prompt_tokens_details\":{\"cached_tokens\":%u",
			kvb_exchange_cached_tokens(x));
		if (chat)
			kvb_buf_printf(&x->out, ",\"created_cache_tokens\":%u",
				kvb_exchange_created_tokens(x));
		kvb_buf_text(&x->out, "}");
	}
	kvb_buf_printf(&x->out, "},\"system_fingerprint\":\"%s\"}\n\n", x->worker->fingerprint);
}

void kvb_add_fingerprint_at_end(struct kvb_exchange *x)
{
	if (!x->include_usage && x->done_count == x->choice_count)
		kvb_buf_printf(&x->out, ",\"system_fingerprint\":\"%s\"", x->worker->fingerprint);
}
