/*
 * sim_openai.c - the life of a generating request.
 *
 * An exchange is made when its request has been read and checked, has one sequence per answer in
 * the engine, and ends in one of three ways: its answer is complete, its connection has ended, or
 * a fault makes the engine give up. Each of them goes through exchange_destroy exactly once.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <xxhash.h>

#include "sim_openai.h"
#include "sim_worker.h"

#define CHOICES_MOST 4096

static void exchange_destroy(struct kvb_exchange *x)
{
	if (x == NULL)
		return;
	for (uint32_t i = 0; x->choices != NULL && i < x->choice_count; i++) {
		if (x->choices[i].seq != NULL)
			kvb_engine_remove(x->worker->engine, x->choices[i].seq);
		kvb_seq_destroy(x->choices[i].seq);
	}
	for (uint32_t i = 0; i < x->prompt_count; i++)
		kvb_tokens_free(&x->prompts[i]);
	if (x->begun) {
		TAILQ_REMOVE(&x->worker->exchanges, x, entry);
		x->worker->load--;
	}
	json_decref(x->body);
	kvb_buf_free(&x->out);
	free(x->prompts);
	free(x->choices);
	free(x->model);
	free(x);
}

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
	return x->prompts;
}

/* The id of the answer: the client's, or a random one. Only characters that need no escaping. */
static void choose_id(struct kvb_exchange *x, const struct kvb_request *request)
{
	json_t *given = json_object_get(x->body, "request_id");
	const char *text = NULL;
	size_t len = 0;

	if (json_is_string(given)) {
		text = json_string_value(given);
		len = json_string_length(given);
	} else {
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

/* What all APIs have in common. */
static bool read_common(struct kvb_exchange *x, struct kvb_error *error)
{
	json_t *options = json_object_get(x->body, "stream_options");

	x->stream = json_is_true(json_object_get(x->body, "stream"));
	x->include_usage = json_is_true(json_object_get(options, "include_usage"));
	x->continuous_usage = x->include_usage &&
			      json_is_true(json_object_get(options, "continuous_usage_stats"));
	x->return_ids = json_is_true(json_object_get(x->body, "return_token_ids"));
	return read_salt(x, error) && x->api->read(x, error) && read_temperature(x, error);
}

static bool check_lengths(struct kvb_exchange *x, struct kvb_error *error)
{
	uint32_t longest = x->worker->options->max_model_len;

	for (uint32_t i = 0; i < x->prompt_count; i++) {
		size_t len = x->prompts[i].count;

		if (x->prompts[i].failed) {
			kvb_error_set(error, 500, "InternalServerError", "", "Out of memory");
			return false;
		}
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

static bool make_choices(struct kvb_exchange *x)
{
	x->choices = calloc((size_t)x->prompt_count * x->n, sizeof(*x->choices));
	if (x->choices == NULL)
		return false;
	for (uint32_t i = 0; i < x->prompt_count * x->n; i++) {
		struct kvb_choice *choice = &x->choices[i];
		const struct kvb_tokens *prompt = &x->prompts[i / x->n];

		choice->exchange = x;
		choice->index = i;
		choice->seq = kvb_seq_create(x->worker->engine, prompt->ids,
			(uint32_t)prompt->count, x->max_new, x->salt, i % x->n);
		x->choice_count++;
		if (choice->seq == NULL)
			return false;
		choice->seq->user = choice;
	}
	return true;
}

/* An exchange that has passed all checks, or NULL and *error filled. */
static struct kvb_exchange *exchange_create(struct kvb_worker *worker, struct kvb_conn *conn,
	const struct kvb_request *request, const struct kvb_api *api, struct kvb_error *error)
{
	struct kvb_exchange *x = calloc(1, sizeof(*x));
	const char *model;

	kvb_error_set(error, 500, "InternalServerError", "", "Out of memory");
	if (x == NULL)
		return NULL;
	x->worker = worker;
	x->conn = conn;
	x->api = api;
	x->n = 1;
	x->natural_end = true;
	x->max_new = worker->options->default_tokens;
	x->created = time(NULL);
	x->body = kvb_openai_parse(request, error);
	if (x->body == NULL || !kvb_openai_model(worker, x->body, &model, &x->lora, error))
		goto fail;
	x->model = strdup(model);
	if (x->model == NULL || !read_common(x, error) || !check_lengths(x, error))
		goto fail;
	if ((uint64_t)x->prompt_count * x->n > CHOICES_MOST) {
		kvb_error_set(
			error, 400, "BadRequestError", "n", "At most %d answers", CHOICES_MOST);
		goto fail;
	}
	choose_id(x, request);
	kvb_error_set(error, 500, "InternalServerError", "", "Out of memory");
	if (!make_choices(x))
		goto fail;
	return x;
fail:
	exchange_destroy(x);
	return NULL;
}

/* vLLM serves one data parallel rank here. */
static bool check_rank(const struct kvb_request *request, struct kvb_error *error)
{
	const char *value;
	size_t len;

	if (!kvb_request_header(request, "x-data-parallel-rank", &value, &len) ||
		(len == 1 && value[0] == '0'))
		return true;
	kvb_error_set(error, 400, "BadRequestError", "",
		"data_parallel_rank %.*s is out of range [0, 1).", (int)(len > 20 ? 20 : len),
		value);
	return false;
}

void kvb_openai_request(struct kvb_worker *worker, struct kvb_conn *conn,
	const struct kvb_request *request, const struct kvb_api *api)
{
	struct kvb_error error;
	struct kvb_exchange *x = exchange_create(worker, conn, request, api, &error);
	int64_t now_ns;

	if (x != NULL && !check_rank(request, &error)) {
		exchange_destroy(x);
		x = NULL;
	}
	if (x == NULL) {
		kvb_error_send(conn, &error, api->anthropic_errors && error.status == 404);
		return;
	}
	x->begun = true;
	TAILQ_INSERT_TAIL(&worker->exchanges, x, entry);
	worker->load++;
	kvb_conn_set_exchange(conn, x);
	now_ns = kvb_worker_sim_ns(worker);
	for (uint32_t i = 0; i < x->choice_count; i++)
		kvb_engine_submit(worker->engine, x->choices[i].seq, now_ns);
	if (x->stream) {
		kvb_http_stream_begin(conn, "text/event-stream; charset=utf-8");
		if (api->accepted != NULL)
			api->accepted(x);
	}
	kvb_worker_kick(worker);
}

void kvb_openai_gone(struct kvb_exchange *x)
{
	exchange_destroy(x);
}

void kvb_exchange_event(struct kvb_exchange *x, bool content)
{
	kvb_http_stream_chunk(x->conn, x->out.data, x->out.len, content);
	kvb_buf_clear(&x->out);
}

static void count_token(struct kvb_choice *choice, bool last)
{
	struct kvb_worker *worker = choice->exchange->worker;
	const struct kvb_seq *seq = choice->seq;
	double second = 1e9 * worker->options->speed; /* simulated ns per second of the clock */
	int64_t now_ns = worker->step_end_ns;
	struct kvb_metrics *m = &worker->metrics;

	if (choice->last_ns == 0) {
		kvb_histogram_add(&m->ttft, (double)(now_ns - seq->submit_ns) / second);
		kvb_histogram_add(&m->queue, (double)(seq->admit_ns - seq->submit_ns) / second);
		kvb_histogram_add(&m->prompt_tokens, seq->prompt_len);
	} else {
		kvb_histogram_add(&m->itl, (double)(now_ns - choice->last_ns) / second);
	}
	choice->last_ns = now_ns == 0 ? 1 : now_ns;
	if (!last)
		return;
	kvb_histogram_add(&m->e2e, (double)(now_ns - seq->submit_ns) / second);
	kvb_histogram_add(&m->generation_tokens, seq->total_len - seq->prompt_len);
	if (choice->exchange->natural_end)
		m->finished_stop++;
	else
		m->finished_length++;
}

/* vLLM's load header, if the request asked for it. */
static const char *load_header(struct kvb_exchange *x, char *out, size_t size)
{
	const struct kvb_request *request = kvb_conn_request(x->conn);
	struct kvb_engine_stats stats;
	const char *format;
	size_t len;
	double usage;

	if (!kvb_request_header(request, "endpoint-load-metrics-format", &format, &len) || len != 4)
		return NULL;
	kvb_engine_stats(x->worker->engine, &stats);
	usage = (double)stats.blocks_used / stats.blocks_usable;
	if (strncasecmp(format, "JSON", 4) == 0)
		snprintf(out, size,
			"endpoint-load-metrics: JSON {\"named_metrics\": "
			"{\"num_requests_waiting\": %.1f, "
			"\"kv_cache_usage_perc\": %.4g%s}}\r\n",
			(double)stats.waiting, usage, usage == 0 ? ".0" : "");
	else
		snprintf(out, size,
			"endpoint-load-metrics: TEXT named_metrics.num_requests_waiting=%.1f, "
			"named_metrics.kv_cache_usage_perc=%.4g%s\r\n",
			(double)stats.waiting, usage, usage == 0 ? ".0" : "");
	return out;
}

static void finish_plain(struct kvb_exchange *x)
{
	char load[200];
	struct kvb_reply reply = {.status = 200, .content_type = "application/json"};
	struct kvb_buf body;
	struct kvb_conn *conn = x->conn;

	reply.before_length = load_header(x, load, sizeof(load));
	x->api->plain(x);
	body = x->out;
	x->out = (struct kvb_buf){0};
	kvb_conn_set_exchange(conn, NULL);
	exchange_destroy(x);
	kvb_http_reply(conn, &reply, body.data, body.len);
	kvb_buf_free(&body);
}

static void finish_stream(struct kvb_exchange *x)
{
	struct kvb_conn *conn = x->conn;

	x->api->end(x);
	kvb_conn_set_exchange(conn, NULL);
	exchange_destroy(x);
	kvb_http_stream_end(conn);
}

/* The engine gives up: what a failed load of KV does in vLLM. */
static void give_up(struct kvb_exchange *x)
{
	struct kvb_conn *conn = x->conn;
	struct kvb_error error;

	if (x->stream) {
		x->api->failed(x, x->events > 0);
		kvb_conn_set_exchange(conn, NULL);
		exchange_destroy(x);
		kvb_http_stream_end(conn);
		return;
	}
	kvb_error_set(&error, 500, "InternalServerError", "", "Internal server error");
	kvb_conn_set_exchange(conn, NULL);
	exchange_destroy(x);
	kvb_error_send(conn, &error, false);
}

static bool must_give_up(const struct kvb_exchange *x)
{
	const struct kvb_fail *fail = kvb_conn_fail(x->conn);

	return kvb_fail_on(fail, KVB_FAIL_ERROR_AFTER_TOKENS) &&
	       (!x->stream || x->events >= fail->value[KVB_FAIL_ERROR_AFTER_TOKENS]);
}

void kvb_openai_token(void *user, struct kvb_seq *seq, uint32_t token, bool last)
{
	struct kvb_choice *choice = seq->user;
	struct kvb_exchange *x = choice->exchange;
	struct kvb_token_event event = {choice, token, choice->last_ns == 0, last, x->events == 0};

	(void)user;
	count_token(choice, last);
	if (must_give_up(x)) {
		give_up(x);
		return;
	}
	if (last) {
		choice->done = true;
		x->done_count++;
	}
	if (x->stream) {
		x->api->token(x, &event);
		x->events++;
	}
	if (x->done_count < x->choice_count)
		return;
	if (x->stream)
		finish_stream(x);
	else
		finish_plain(x);
}

uint32_t kvb_exchange_prompt_tokens(const struct kvb_exchange *x)
{
	size_t sum = 0;

	for (uint32_t i = 0; i < x->prompt_count; i++)
		sum += x->prompts[i].count;
	return (uint32_t)sum;
}

uint32_t kvb_exchange_cached_tokens(const struct kvb_exchange *x)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < x->prompt_count; i++)
		sum += x->choices[i * x->n].seq->cached_len;
	return sum;
}

uint32_t kvb_exchange_created_tokens(const struct kvb_exchange *x)
{
	uint32_t size = x->worker->options->block_size, sum = 0;

	for (uint32_t i = 0; i < x->prompt_count; i++)
		sum += x->choices[i * x->n].seq->prompt_len / size * size;
	return sum - kvb_exchange_cached_tokens(x);
}

uint32_t kvb_exchange_completion_tokens(const struct kvb_exchange *x)
{
	uint32_t sum = 0;

	for (uint32_t i = 0; i < x->choice_count; i++)
		sum += x->choices[i].seq->total_len - x->choices[i].seq->prompt_len;
	return sum;
}

void kvb_choice_text(const struct kvb_choice *choice, struct kvb_buf *out)
{
	const struct kvb_seq *seq = choice->seq;

	for (uint32_t i = seq->prompt_len; i < seq->total_len; i++)
		kvb_token_write(out, seq->tokens[i]);
}

void kvb_buf_json_tokens(struct kvb_buf *out, const uint32_t *ids, size_t count)
{
	struct kvb_buf text = {0};

	for (size_t i = 0; i < count; i++)
		kvb_token_write(&text, ids[i]);
	out->failed |= text.failed;
	kvb_buf_json(out, text.data, text.len);
	kvb_buf_free(&text);
}

void kvb_buf_error_event(struct kvb_buf *out)
{
	kvb_buf_text(out, "data: {\"error\": {\"message\": \"Internal server error\", \"type\": "
			  "\"InternalServerError\", \"param\": null, \"code\": 500}}\n\n");
}
