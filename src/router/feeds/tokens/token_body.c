/*
 * token_body.c - converts requests into bodies for /tokenize.
 *
 * The conversion follows vLLM 0.32 (`construct_input_messages` of the responses, the conversion of
 * Anthropic's messages, `build_chat_params` of all three) and was compared with the tokens that the
 * engine itself counted. Requests that it does not clearly cover, such as tools, tool results,
 * reasoning, images or a message to be continued, are not converted: they are routed by text, which
 * is better than by slightly wrong tokens.
 *
 * A JSON tree is acceptable here: parsing costs little compared with the engine's work on these
 * bodies, and this is not a loop's thread.
 */
#include "feeds/tokens/token_body.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define BILLING "x-anthropic-billing-header" /* vLLM drops text blocks that begin with this */

/* One conversion. */
struct work {
	json_t *from;     /* the request */
	json_t *to;       /* the body to post */
	json_t *messages; /* of `to`; borrowed */
	bool no_memory;
};

static bool is_text(const json_t *value)
{
	return json_is_string(value);
}

static bool is_absent(const json_t *value)
{
	return value == NULL || json_is_null(value);
}

static bool text_is(const json_t *value, const char *text)
{
	return is_text(value) && strcmp(json_string_value(value), text) == 0;
}

/* Sets a member. Takes value, also on failure. */
static bool set_value(struct work *w, json_t *object, const char *key, json_t *value)
{
	if (value != NULL && json_object_set_new(object, key, value) == 0)
		return true;
	w->no_memory = true;
	return false;
}

static bool append(struct work *w, json_t *array, json_t *value)
{
	if (value != NULL && json_array_append_new(array, value) == 0)
		return true;
	w->no_memory = true;
	return false;
}

/* Copies a member, if the request has it. */
static bool keep_key(struct work *w, const char *key)
{
	json_t *value = json_object_get(w->from, key);

	return is_absent(value) || set_value(w, w->to, key, json_incref(value));
}

/* --- arguments of a chat's template other than the messages --- */

/* Returns the object chat_template_kwargs of `to`, and makes it if it is missing. */
static json_t *kwargs(struct work *w)
{
	json_t *given = json_object_get(w->from, "chat_template_kwargs");
	json_t *object = json_object_get(w->to, "chat_template_kwargs");

	if (object != NULL)
		return object;
	if (!is_absent(given) && !json_is_object(given))
		return NULL;
	object = is_absent(given) ? json_object() : json_copy(given);
	return set_value(w, w->to, "chat_template_kwargs", object) ? object : NULL;
}

/* A reasoning effort also switches thinking on or off, unless the request does so itself. */
static bool set_effort(struct work *w, json_t *effort)
{
	json_t *object;

	if (is_absent(effort))
		return true;
	object = kwargs(w);
	if (object == NULL || !is_text(effort) || text_is(effort, "auto"))
		return false;
	if (json_object_get(object, "enable_thinking") == NULL &&
		!set_value(w, object, "enable_thinking", json_boolean(!text_is(effort, "none"))))
		return false;
	return set_value(w, object, "reasoning_effort", json_incref(effort));
}

static bool set_documents(struct work *w)
{
	json_t *documents = json_object_get(w->from, "documents"), *object;

	if (is_absent(documents))
		return true;
	object = kwargs(w);
	return object != NULL && set_value(w, object, "documents", json_incref(documents));
}

static bool convert_chat(struct work *w)
{
	static const char *const kept[] = {"messages", "tools", "add_generation_prompt",
		"continue_final_message", "add_special_tokens", "chat_template",
		"chat_template_kwargs"};

	for (size_t i = 0; i < sizeof(kept) / sizeof(kept[0]); i++)
		if (!keep_key(w, kept[i]))
			return false;
	return set_documents(w) && set_effort(w, json_object_get(w->from, "reasoning_effort"));
}

static bool convert_completion(struct work *w)
{
	json_t *prompt = json_object_get(w->from, "prompt");

	if (!json_is_array(prompt) || json_array_size(prompt) != 1)
		return false;
	prompt = json_array_get(prompt, 0);
	return is_text(prompt) && set_value(w, w->to, "prompt", json_incref(prompt)) &&
	       keep_key(w, "add_special_tokens");
}

/* --- messages --- */

/* Takes content. */
static bool add_message(struct work *w, const char *role, json_t *content)
{
	json_t *message = json_object();
	bool ok;

	if (message == NULL || content == NULL) {
		json_decref(message);
		json_decref(content);
		w->no_memory = true;
		return false;
	}
	ok = set_value(w, message, "role", json_string(role)) &&
	     set_value(w, message, "content", content);
	if (ok)
		return append(w, w->messages, message);
	json_decref(message);
	return false;
}

/* Returns the text of a part that is nothing but text; NULL: it is more. */
static json_t *part_text(const json_t *part)
{
	static const char *const types[] = {"text", "input_text", "output_text"};
	json_t *type = json_object_get(part, "type"), *text = json_object_get(part, "text");

	if (!is_text(text))
		return NULL;
	for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (text_is(type, types[i]))
			return text;
	return NULL;
}

/* Converts parts to those of a chat; one_is_string: a single part becomes a string. NULL: not only
 * text. */
static json_t *chat_parts(struct work *w, const json_t *content, bool one_is_string)
{
	json_t *parts = json_array(), *part;
	size_t i;

	json_array_foreach (content, i, part) {
		json_t *text = part_text(part);

		if (text == NULL || json_string_length(text) == 0 ||
			!append(w, parts,
				json_pack("{s:s, s:O}", "type", "text", "text", text))) {
			json_decref(parts);
			return NULL;
		}
	}
	if (json_array_size(parts) == 0) {
		json_decref(parts);
		return NULL;
	}
	if (one_is_string && json_array_size(parts) == 1) {
		part = json_incref(json_object_get(json_array_get(parts, 0), "text"));
		json_decref(parts);
		return part;
	}
	return parts;
}

/* --- /v1/messages --- */

/* Returns the blocks' texts joined together; NULL: not only text, or out of memory. */
static json_t *join_blocks(struct work *w, const json_t *blocks)
{
	size_t i, len = 0;
	json_t *block, *text, *joined;
	char *all;

	json_array_foreach (blocks, i, block) {
		text = part_text(block);
		if (text == NULL || strlen(json_string_value(text)) != json_string_length(text))
			return NULL;
		len += json_string_length(text);
	}
	all = malloc(len + 1);
	len = 0;
	json_array_foreach (blocks, i, block) {
		text = part_text(block);
		if (all == NULL ||
			strncmp(json_string_value(text), BILLING, sizeof(BILLING) - 1) == 0)
			continue;
		memcpy(all + len, json_string_value(text), json_string_length(text));
		len += json_string_length(text);
	}
	/* UTF-8, since its parts are */
	joined = all == NULL ? NULL : json_stringn_nocheck(all, len);
	free(all);
	w->no_memory = w->no_memory || joined == NULL;
	return joined;
}

/* Adds the system prompt of the request's top level. */
static bool add_system(struct work *w)
{
	json_t *system = json_object_get(w->from, "system"), *joined;

	if (is_absent(system) || (is_text(system) && json_string_length(system) == 0))
		return true;
	if (is_text(system))
		return add_message(w, "system", json_incref(system));
	joined = json_is_array(system) ? join_blocks(w, system) : NULL;
	if (joined == NULL)
		return false;
	if (json_string_length(joined) > 0)
		return add_message(w, "system", joined);
	json_decref(joined);
	return true;
}

static bool add_anthropic(struct work *w, const json_t *message)
{
	json_t *role = json_object_get(message, "role");
	json_t *content = json_object_get(message, "content");

	if (!text_is(role, "user") && !text_is(role, "assistant"))
		return false;
	if (is_text(content))
		return add_message(w, json_string_value(role), json_incref(content));
	content = json_is_array(content) ? chat_parts(w, content, true) : NULL;
	return content != NULL && add_message(w, json_string_value(role), content);
}

static bool convert_messages(struct work *w)
{
	json_t *messages = json_object_get(w->from, "messages"), *message;
	json_t *thinking = json_object_get(w->from, "thinking");
	size_t i;

	/* "disabled" sets an effort that depends on the engine's template, so that the request is
	 * not converted. */
	if (!is_absent(thinking) && !text_is(json_object_get(thinking, "type"), "enabled") &&
		!text_is(json_object_get(thinking, "type"), "adaptive"))
		return false;
	if (!json_is_array(messages) || !add_system(w))
		return false;
	json_array_foreach (messages, i, message)
		if (!add_anthropic(w, message))
			return false;
	return keep_key(w, "chat_template_kwargs") &&
	       set_effort(w,
		       json_object_get(json_object_get(w->from, "output_config"), "effort"));
}

/* --- /v1/responses --- */

static bool add_item(struct work *w, const json_t *item)
{
	json_t *role = json_object_get(item, "role"), *type = json_object_get(item, "type");
	json_t *content = json_object_get(item, "content"),
	       *status = json_object_get(item, "status");
	bool assistant = text_is(role, "assistant");

	if ((!is_absent(type) && !text_is(type, "message")) ||
		(!is_absent(status) && !text_is(status, "completed")))
		return false;
	if (!assistant && !text_is(role, "user") && !text_is(role, "system") &&
		!text_is(role, "developer"))
		return false;
	if (is_text(content))
		return add_message(w, json_string_value(role), json_incref(content));
	/* vLLM uses only the first part of an earlier answer, so that answers with more are not
	 * converted. */
	if (!json_is_array(content) || (assistant && json_array_size(content) != 1))
		return false;
	content = chat_parts(w, content, assistant);
	return content != NULL && add_message(w, json_string_value(role), content);
}

static bool convert_response(struct work *w)
{
	json_t *input = json_object_get(w->from, "input"), *item;
	json_t *instructions = json_object_get(w->from, "instructions");
	json_t *reasoning = json_object_get(w->from, "reasoning");
	size_t i;

	if (!is_absent(instructions) && !is_text(instructions))
		return false;
	if (is_text(instructions) && json_string_length(instructions) > 0 &&
		!add_message(w, "system", json_incref(instructions)))
		return false;
	if (is_text(input)) {
		if (!add_message(w, "user", json_incref(input)))
			return false;
	} else if (!json_is_array(input)) {
		return false;
	}
	json_array_foreach (input, i, item)
		if (!add_item(w, item))
			return false;
	return keep_key(w, "chat_template_kwargs") &&
	       set_effort(w, json_object_get(reasoning, "effort"));
}

static bool convert(struct work *w, enum kvw_api api)
{
	if (api == KVW_API_COMPLETIONS)
		return convert_completion(w);
	if (api == KVW_API_CHAT)
		return convert_chat(w);
	w->messages = json_array();
	if (!set_value(w, w->to, "messages", w->messages))
		return false;
	if (api == KVW_API_MESSAGES)
		return convert_messages(w);
	return api == KVW_API_RESPONSES && convert_response(w);
}

enum kvw_err kvw_token_body_convert(
	enum kvw_api api, const char *body, size_t len, char **out, size_t *out_len)
{
	struct work w = {.from = json_loadb(body, len, JSON_ALLOW_NUL, NULL), .to = json_object()};
	enum kvw_err err = KVW_EPROTO;
	char *text;

	if (w.from == NULL || !json_is_object(w.from))
		goto out;
	err = KVW_ENOTFOUND;
	if (!keep_key(&w, "model") || !convert(&w, api)) {
		err = w.no_memory ? KVW_ENOMEM : KVW_ENOTFOUND;
		goto out;
	}
	text = json_dumps(w.to, JSON_COMPACT);
	err = text == NULL ? KVW_ENOMEM : KVW_OK;
	if (err == KVW_OK) {
		*out = text;
		*out_len = strlen(text);
	}
out:
	json_decref(w.to);
	json_decref(w.from);
	return err;
}
