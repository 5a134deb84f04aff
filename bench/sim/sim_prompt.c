/*
 * sim_prompt.c - the simulated chat template.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "bench/sim/sim_prompt.h"

static void add_string(struct kvb_tokens *out, const json_t *text)
{
	kvb_tokens_text(out, json_string_value(text), json_string_length(text));
}

static void add_dump(struct kvb_tokens *out, const json_t *value)
{
	char *text = json_dumps(value, JSON_COMPACT | JSON_ENCODE_ANY);

	if (text == NULL)
		return; /* the value has no text */
	kvb_tokens_text(out, text, strlen(text));
	free(text);
}

/* Adds an object that is not text, as a digest of its content. */
static void add_object(struct kvb_tokens *out, const json_t *part)
{
	char *text = json_dumps(part, JSON_COMPACT | JSON_SORT_KEYS);
	char digest[17];

	if (text == NULL)
		return; /* the value has no text */
	snprintf(digest, sizeof(digest), "%016llx",
		(unsigned long long)XXH3_64bits(text, strlen(text)));
	free(text);
	kvb_tokens_add(out, KVB_TOKEN_IMAGE);
	kvb_tokens_text(out, digest, 16);
}

void kvb_prompt_role(struct kvb_tokens *out, const char *role, const json_t *name)
{
	kvb_tokens_add(out, KVB_TOKEN_START);
	kvb_tokens_text(out, role, strlen(role));
	if (json_is_string(name)) {
		kvb_tokens_text(out, ":", 1);
		add_string(out, name);
	}
	kvb_tokens_add(out, KVB_TOKEN_HEADER_END);
}

bool kvb_prompt_content(struct kvb_tokens *out, const json_t *content)
{
	size_t i;
	json_t *part;

	if (content == NULL || json_is_null(content))
		return true;
	if (json_is_string(content)) {
		add_string(out, content);
		return true;
	}
	if (!json_is_array(content))
		return false;
	json_array_foreach(content, i, part)
	{
		json_t *text = json_object_get(part, "text");

		if (json_is_string(part))
			add_string(out, part);
		else if (json_is_string(text))
			add_string(out, text);
		else if (json_is_object(part))
			add_object(out, part);
		else
			return false;
	}
	return true;
}

bool kvb_prompt_message(struct kvb_tokens *out, const char *role, const json_t *message)
{
	json_t *calls = json_object_get(message, "tool_calls");

	kvb_prompt_role(out, role, json_object_get(message, "name"));
	if (!kvb_prompt_content(out, json_object_get(message, "content")))
		return false;
	if (json_is_array(calls) && json_array_size(calls) > 0)
		add_dump(out, calls);
	kvb_tokens_add(out, KVB_TOKEN_END);
	return true;
}

bool kvb_prompt_messages(struct kvb_tokens *out, const json_t *messages)
{
	size_t i;
	json_t *message;

	json_array_foreach(messages, i, message)
	{
		json_t *role = json_object_get(message, "role");

		if (!json_is_string(role) ||
			!kvb_prompt_message(out, json_string_value(role), message))
			return false;
	}
	return true;
}

void kvb_prompt_tools(struct kvb_tokens *out, const json_t *tools)
{
	if (!json_is_array(tools) || json_array_size(tools) == 0)
		return;
	kvb_prompt_role(out, "tools", NULL);
	add_dump(out, tools);
	kvb_tokens_add(out, KVB_TOKEN_END);
}

void kvb_prompt_generation(struct kvb_tokens *out)
{
	kvb_prompt_role(out, "assistant", NULL);
}

bool kvb_prompt_ids(struct kvb_tokens *out, const json_t *ids, json_int_t *bad)
{
	size_t i;
	json_t *id;

	*bad = -1;
	json_array_foreach(ids, i, id)
	{
		json_int_t value = json_integer_value(id);

		if (!json_is_integer(id))
			return false;
		if (value < 0 || value >= KVB_TOKEN_VOCAB) {
			*bad = value;
			return false;
		}
		kvb_tokens_add(out, (uint32_t)value);
	}
	return true;
}
