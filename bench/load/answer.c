/* answer.c - what an OpenAI-style stream says: text, usage, error. */
#include "bench/load/answer.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* Adds a string member's text; true if there was any. */
static bool add_text(struct kvb_answer *answer, const json_t *object, const char *key)
{
	const json_t *text = json_object_get(object, key);

	if (!json_is_string(text) || json_string_length(text) == 0)
		return false;
	kvb_buf_add(&answer->text, json_string_value(text), json_string_length(text));
	return true;
}

static bool has_text(const json_t *object, const char *key)
{
	const json_t *text = json_object_get(object, key);

	return json_is_string(text) && json_string_length(text) > 0;
}

static void read_usage(struct kvb_answer *answer, const json_t *usage)
{
	const json_t *details = json_object_get(usage, "prompt_tokens_details");
	const json_t *cached = json_object_get(details, "cached_tokens");

	if (!json_is_object(usage))
		return;
	answer->usage_known = true;
	answer->prompt_tokens = json_integer_value(json_object_get(usage, "prompt_tokens"));
	answer->completion_tokens = json_integer_value(json_object_get(usage, "completion_tokens"));
	if (json_is_integer(cached)) {
		answer->cached_known = true;
		answer->cached_tokens = json_integer_value(cached);
	}
}

static void read_error(struct kvb_answer *answer, const json_t *error)
{
	const char *text = json_string_value(json_object_get(error, "message"));

	if (error == NULL || json_is_null(error))
		return;
	answer->failed = true;
	snprintf(answer->error, sizeof(answer->error), "%s", text ? text : "no message");
}

enum kvw_err kvb_answer_read(struct kvb_answer *answer, const char *data, size_t len, bool *content)
{
	const json_t *choice, *delta;
	bool brought = false;
	json_t *event;

	if (len == 6 && memcmp(data, "[DONE]", 6) == 0) {
		answer->done = true;
		*content = false;
		return KVW_OK;
	}
	event = json_loadb(data, len, 0, NULL);
	if (!json_is_object(event)) {
		json_decref(event);
		return KVW_EPROTO;
	}
	choice = json_array_get(json_object_get(event, "choices"), 0);
	delta = json_object_get(choice, "delta");
	brought |= add_text(answer, delta, "content");
	brought |= has_text(delta, "reasoning") || has_text(delta, "reasoning_content");
	brought |= json_array_size(json_object_get(delta, "tool_calls")) > 0;
	brought |= add_text(answer, choice, "text");
	read_usage(answer, json_object_get(event, "usage"));
	read_error(answer, json_object_get(event, "error"));
	json_decref(event);
	*content = brought;
	return KVW_OK;
}

void kvb_answer_finish(struct kvb_answer *answer)
{
	kvb_buf_finish(&answer->text);
}
