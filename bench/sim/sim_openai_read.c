/*
 * sim_openai_read.c - what a generating request asks for, and what is wrong with it.
 *
 * Checks come in the order in which a vLLM server makes them: content type, JSON, model, fields,
 * lengths; the first that fails is the one that is answered.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <xxhash.h>

#include "bench/sim/sim_openai.h"
#include "bench/sim/sim_read.h"
#include "bench/sim/sim_worker.h"

json_t *kvb_openai_parse(const struct kvb_request *request, struct kvb_error *error)
{
	const char *type = "";
	size_t len = 0;
	json_error_t where;
	json_t *body;

	if (!kvb_request_header(request, "content-type", &type, &len) || len < 16 ||
		strncasecmp(type, "application/json", 16) != 0) {
		kvb_error_set(error, 400, "Bad Request", "",
			"1 validation error:\n  Unsupported Media Type: Only 'application/json' is "
			"allowed");
		return NULL;
	}
	body = json_loadb(request->body == NULL ? "" : request->body, request->body_len,
		JSON_ALLOW_NUL | JSON_DECODE_ANY, &where);
	if (body == NULL) {
		char param[64];

		snprintf(param, sizeof(param), "body.%d", where.position);
		kvb_error_set(error, 400, "Bad Request", param,
			"1 validation error:\n  {'type': 'json_invalid', 'loc': '%s', 'msg': 'JSON "
			"decode error', 'input': '<dict of 0 items>', 'ctx': {'error': '%.120s'}}",
			param, where.text);
		return NULL;
	}
	if (!json_is_object(body)) {
		json_decref(body);
		kvb_error_type(error, "", "dictionary");
		return NULL;
	}
	return body;
}

bool kvb_openai_model(const struct kvb_worker *worker, const json_t *body, const char **name,
	bool *lora, struct kvb_error *error)
{
	json_t *model = json_object_get(body, "model");

	*lora = false;
	*name = worker->options->model;
	if (model == NULL || json_is_null(model))
		return true;
	if (!json_is_string(model)) {
		kvb_error_type(error, "model", "string");
		return false;
	}
	*name = json_string_value(model);
	if ((*name)[0] == '\0')
		*name = worker->options->model;
	if (kvb_worker_serves(worker, *name, lora))
		return true;
	kvb_error_set(error, 404, "NotFoundError", "model",
		"The model `%.200s` does not exist. Valid aliases: %s.", *name,
		worker->options->model);
	return false;
}

bool kvb_read_limit(struct kvb_exchange *x, const char *key, struct kvb_error *error)
{
	json_t *limit = json_object_get(x->body, key);
	uint32_t longest = x->worker->options->max_model_len;

	if (limit == NULL || json_is_null(limit))
		return true;
	if (!json_is_integer(limit)) {
		kvb_error_type(error, key, "integer");
		return false;
	}
	if (json_integer_value(limit) < 1) {
		kvb_error_set(error, 400, "BadRequestError", key,
			"%s must be at least 1, got %lld.", key,
			(long long)json_integer_value(limit));
		return false;
	}
	if (json_integer_value(limit) > longest) {
		kvb_error_set(error, 400, "BadRequestError", key,
			"%s=%lld cannot be greater than max_model_len=%u. Please request fewer "
			"output "
			"tokens. (parameter=%s, value=%lld)",
			key, (long long)json_integer_value(limit), longest, key,
			(long long)json_integer_value(limit));
		return false;
	}
	x->max_new = (uint32_t)json_integer_value(limit);
	x->natural_end = false;
	return true;
}

struct kvb_tokens *kvb_exchange_add_prompts(struct kvb_exchange *x, uint32_t count)
{
	x->prompts = calloc(count, sizeof(*x->prompts));
	if (x->prompts != NULL)
		x->prompt_count = count;
	for (uint32_t i = 0; i < x->prompt_count; i++)
		x->prompts[i].separator = kvb_worker_separator(x->worker);
	return x->prompts;
}

void kvb_read_id(struct kvb_exchange *x, const struct kvb_request *request)
{
	json_t *given = json_object_get(x->body, "request_id");
	const char *text = NULL;
	size_t len = 0;

	if (json_is_string(given)) {
		text = json_string_value(given);
		len = json_string_length(given);
	} else if (x->api != &kvb_api_responses) { /* vLLM names those by itself */
		kvb_request_header(request, "x-request-id", &text, &len);
	}
	if (len == 0 || len >= sizeof(x->id)) {
		snprintf(x->id, sizeof(x->id), "%016llx",
			(unsigned long long)kvb_worker_random(x->worker));
		return;
	}
	for (size_t i = 0; i < len; i++)
		x->id[i] = text[i] < 0x20 || text[i] == '"' || text[i] == '\\' ? '_' : text[i];
	x->id[len] = '\0';
}

static bool read_temperature(struct kvb_exchange *x, struct kvb_error *error)
{
	json_t *value = json_object_get(x->body, "temperature");

	if (!json_is_number(value) || json_number_value(value) >= 0)
		return true;
	kvb_error_set(error, 400, "BadRequestError", "temperature",
		"temperature must be non-negative, got %.1f. (parameter=temperature, value=%.1f)",
		json_number_value(value), json_number_value(value));
	return false;
}

static bool read_salt(struct kvb_exchange *x, struct kvb_error *error)
{
	json_t *salt = json_object_get(x->body, "cache_salt");

	if (x->lora)
		x->salt = XXH3_64bits(x->model, strlen(x->model));
	if (salt == NULL || json_is_null(salt))
		return true;
	if (!json_is_string(salt) || json_string_length(salt) == 0) {
		kvb_error_set(error, 400, "Bad Request", "body.cache_salt",
			"1 validation error:\n  {'type': 'value_error', 'loc': 'body', 'msg': "
			"'Value "
			"error, Parameter 'cache_salt' must be a non-empty string if provided.'}");
		return false;
	}
	x->salt = XXH3_64bits_withSeed(
		json_string_value(salt), json_string_length(salt), x->salt + 1);
	return true;
}

/* Reads whether the request demands exact KV, without fragments. */
static void read_exact(struct kvb_exchange *x)
{
	json_t *params = json_object_get(x->body, "kv_transfer_params");

	x->exact = json_is_false(json_object_get(params, "kvtier.fragments"));
}

bool kvb_read_common(struct kvb_exchange *x, struct kvb_error *error)
{
	json_t *options = json_object_get(x->body, "stream_options");

	x->stream = json_is_true(json_object_get(x->body, "stream"));
	x->include_usage = json_is_true(json_object_get(options, "include_usage"));
	x->continuous_usage = x->include_usage &&
			      json_is_true(json_object_get(options, "continuous_usage_stats"));
	read_exact(x);
	x->return_ids = json_is_true(json_object_get(x->body, "return_token_ids"));
	return read_salt(x, error) && x->api->read(x, error) && read_temperature(x, error);
}

bool kvb_read_lengths(struct kvb_exchange *x, struct kvb_error *error)
{
	uint32_t longest = x->worker->options->max_model_len;

	for (uint32_t i = 0; i < x->prompt_count; i++) {
		size_t len = x->prompts[i].count;

		if (len >= longest) {
			kvb_error_set(error, 400, "BadRequestError", "input_tokens",
				"This model's maximum context length is %u tokens. However, your "
				"prompt "
				"contains %zu input tokens, which exceeds this limit even without "
				"any "
				"output tokens. Please reduce the length of the input prompt. "
				"(parameter=input_tokens, value=%zu)",
				longest, len, len);
			return false;
		}
		if (x->natural_end && x->max_new > longest - len)
			x->max_new = (uint32_t)(longest - len);
		if (x->max_new > longest - len) {
			kvb_error_set(error, 400, "BadRequestError", "input_tokens",
				"This model's maximum context length is %u tokens. However, you "
				"requested "
				"%u output tokens and your prompt contains %zu input tokens, for a "
				"total "
				"of %zu tokens. Please reduce the length of the input prompt or "
				"the number "
				"of requested output tokens. (parameter=input_tokens, value=%zu)",
				longest, x->max_new, len, len + x->max_new, len);
			return false;
		}
	}
	return true;
}
