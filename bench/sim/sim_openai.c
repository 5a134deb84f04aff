/*
 * sim_openai.c - the life of a generating request, from its sequences to its last byte.
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

#include "base/clock.h"
#include "bench/sim/sim_due.h"
#include "bench/sim/sim_nixl.h"
#include "bench/sim/sim_shared.h"
#include "bench/sim/sim_sidecar.h"
#include "bench/sim/sim_transfer.h"
#include "bench/sim/sim_openai.h"
#include "bench/sim/sim_read.h"
#include "bench/sim/sim_worker.h"

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
	if (x->is_coming)
		TAILQ_REMOVE(&x->worker->coming, x, coming);
	if (x->begun) {
		TAILQ_REMOVE(&x->worker->exchanges, x, entry);
		x->worker->load--;
	}
	kvb_nixl_drop(x);
	kvb_sidecar_drop(x);
	json_decref(x->body);
	kvb_buf_finish(&x->out);
	free(x->prompts);
	free(x->choices);
	free(x->model);
	if (x->silence != NULL)
		event_free(x->silence);
	free(x);
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

/* Makes an exchange of a request that passes all checks; NULL, with *error filled, if it fails
 * one. */
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
	if (x->model == NULL || !kvb_read_common(x, error) || !kvb_read_lengths(x, error))
		goto fail;
	if ((uint64_t)x->prompt_count * x->n > CHOICES_MOST) {
		kvb_error_set(
			error, 400, "BadRequestError", "n", "At most %d answers", CHOICES_MOST);
		goto fail;
	}
	kvb_read_id(x, request);
	kvb_error_set(error, 500, "InternalServerError", "", "Out of memory");
	if (!make_choices(x))
		goto fail;
	return x;
fail:
	exchange_destroy(x);
	return NULL;
}

/* Reads when the request arrives in simulated time: now, or when x-sim-due says. */
static bool read_arrival(
	struct kvb_exchange *x, const struct kvb_request *request, struct kvb_error *error)
{
	struct kvb_due due;
	const char *value;
	size_t len;

	x->arrival_ns = kvb_worker_sim_ns(x->worker);
	if (!kvb_request_header(request, "x-sim-due", &value, &len))
		return true;
	if (!kvb_due_parse(value, len, &due)) {
		/* a status that shows the fault of a load generator */
		kvb_error_set(error, 599, "BadRequestError", "", "x-sim-due is not 'DUE LEAD'");
		return false;
	}
	x->has_due = true;
	x->arrival_ns = kvb_due_arrival_ns(&due, &x->worker->clock, kvw_clock_ns());
	return true;
}

/* Counts the request if its client will leave, or has left. */
static bool read_leave(
	struct kvb_worker *worker, const struct kvb_request *request, struct kvb_error *error)
{
	int64_t leave_ns = 0, after_ns = 0;
	const char *value;
	size_t len;

	if (!kvb_request_header(request, "x-sim-leave", &value, &len))
		return true;
	if (!kvb_due_number(value, len, &leave_ns)) {
		kvb_error_set(error, 599, "BadRequestError", "", "x-sim-leave is not a moment");
		return false;
	}
	worker->leavers++;
	after_ns = kvw_clock_ns() - leave_ns;
	if (after_ns <= 0)
		return true;
	worker->left_before++;
	worker->left_before_ns = after_ns > worker->left_before_ns ? after_ns : worker->left_before_ns;
	return true;
}

void kvb_exchange_submit(struct kvb_exchange *x)
{
	for (uint32_t i = 0; i < x->choice_count; i++)
		kvb_engine_submit(x->worker->engine, x->choices[i].seq, x->arrival_ns);
}

static void await_silence(struct kvb_exchange *x)
{
	double s = x->worker->options->keep_alive_s;
	struct timeval tv = {(time_t)s, (suseconds_t)((s - (double)(time_t)s) * 1e6)};

	if (x->silence != NULL)
		evtimer_add(x->silence, &tv);
}

static void on_silence(evutil_socket_t fd, short what, void *arg)
{
	static const char comment[] = ": keep-alive\n\n";
	struct kvb_exchange *x = arg;

	(void)fd;
	(void)what;
	kvb_http_stream_chunk(x->conn, comment, sizeof(comment) - 1, false);
	await_silence(x);
}

/* Begins comments on the two paths on which vLLM 0.32 sends them. */
static void begin_comments(struct kvb_exchange *x)
{
	if (x->worker->options->keep_alive_s > 0 &&
		(x->api == &kvb_api_chat || x->api == &kvb_api_completions))
		x->silence = evtimer_new(x->worker->base, on_silence, x);
	await_silence(x);
}

static const char full_text[] =
	"The engine is currently busy and cannot accept new requests. Please try again later or on a different instance.";

/* The engine has as many requests as it may. Of a plain answer there is no first event. */
static bool is_full(struct kvb_worker *worker, struct kvb_error *error)
{
	const struct kvb_options *options = worker->options;
	struct kvb_engine_stats stats;

	if (options->max_queued == 0)
		return false;
	kvb_engine_stats(worker->engine, &stats);
	if (stats.running + stats.waiting < options->max_queued)
		return false;
	if (options->full_as == KVB_FULL_429)
		kvb_error_set(error, 429, "overloaded", "", "Model is overloaded");
	else
		kvb_error_set(error, 503, "Service Unavailable", "", "%s", full_text);
	return true;
}

static void refuse_in_stream(struct kvb_conn *conn)
{
	struct kvb_buf event = {0};

	kvb_buf_printf(&event,
		"data: {\"error\": {\"message\": \"%s\", \"type\": \"Service Unavailable\", \"param\": null, "
		"\"code\": 503}}\n\ndata: [DONE]\n\n",
		full_text);
	kvb_http_stream_begin(conn, "text/event-stream; charset=utf-8");
	kvb_http_stream_chunk(conn, event.data, event.len, false);
	kvb_http_stream_end(conn);
	kvb_buf_finish(&event);
}

/* Writes the error of a wrong rank as vLLM's Python frontend does, or its Rust frontend, which
 * counts the ranks of all servers. */
static void refuse_rank(const struct kvb_worker *worker, uint64_t rank, struct kvb_error *error)
{
	const struct kvb_options *o = worker->options;

	if (o->rank_is_global)
		kvb_error_set(error, 400, "invalid_request_error", "",
			"data parallel rank %llu is not connected to this frontend; connected ranks: [%u, %u]",
			(unsigned long long)rank, worker->global_rank,
			worker->global_rank + o->ranks - 1);
	else
		kvb_error_set(error, 400, "BadRequestError", "",
			"data_parallel_rank %llu is out of range [0, %u).", (unsigned long long)rank,
			o->ranks);
}

void kvb_openai_request(struct kvb_worker *worker, struct kvb_conn *conn,
	const struct kvb_request *request, const struct kvb_api *api)
{
	struct kvb_error error;
	uint64_t wrong = 0;
	struct kvb_worker *rank = kvb_worker_rank(worker, request, &wrong);
	struct kvb_exchange *x =
		exchange_create(rank == NULL ? worker : rank, conn, request, api, &error);
	bool has_due, waits;

	if (x != NULL && rank == NULL)
		refuse_rank(worker, wrong, &error);
	worker = rank == NULL ? worker : rank;
	if (x != NULL && (rank == NULL || !read_arrival(x, request, &error) ||
				 !read_leave(worker, request, &error))) {
		exchange_destroy(x);
		x = NULL;
	}
	if (x != NULL && is_full(worker, &error)) {
		bool stream = x->stream && worker->options->full_as == KVB_FULL_EVENT;

		exchange_destroy(x);
		x = NULL;
		if (stream) {
			refuse_in_stream(conn);
			return;
		}
	}
	if (x == NULL) {
		kvb_error_send(conn, &error, api->anthropic_errors && error.status == 404);
		return;
	}
	x->begun = true;
	TAILQ_INSERT_TAIL(&worker->exchanges, x, entry);
	worker->load++;
	kvb_conn_set_exchange(conn, x);
	has_due = x->has_due;
	/* Simulated time may stand still for tiers; an engine behind the clock has not reached
	 * the request's arrival yet. */
	waits = has_due || worker->store != NULL;
	if (kvb_transfer_begin(x, request))
		has_due = true;
	else if (waits)
		kvb_worker_expect(worker, x);
	else
		kvb_exchange_submit(x);
	if (x->stream) {
		kvb_http_stream_begin(conn, "text/event-stream; charset=utf-8");
		begin_comments(x);
		if (api->accepted != NULL)
			api->accepted(x);
	}
	if (!has_due)
		kvb_worker_kick(worker);
}

void kvb_openai_gone(struct kvb_exchange *x)
{
	exchange_destroy(x);
}

void kvb_exchange_event(struct kvb_exchange *x, bool content)
{
	await_silence(x);
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
		kvb_histogram_add(&m->prefill, (double)(now_ns - seq->admit_ns) / second);
		kvb_histogram_add(&m->hit_rate, (double)seq->cached_len / seq->prompt_len);
		kvb_histogram_add(&m->prompt_tokens, seq->prompt_len);
		choice->first_ns = now_ns;
	} else {
		kvb_histogram_add(&m->itl, (double)(now_ns - choice->last_ns) / second);
	}
	choice->last_ns = now_ns == 0 ? 1 : now_ns;
	if (!last)
		return;
	kvb_histogram_add(&m->e2e, (double)(now_ns - seq->submit_ns) / second);
	kvb_histogram_add(&m->decode, (double)(now_ns - choice->first_ns) / second);
	kvb_histogram_add(&m->generation_tokens, seq->total_len - seq->prompt_len);
	m->answered_prompt += seq->prompt_len;
	m->answered_cached += seq->cached_len;
	m->answered_generated += seq->total_len - seq->prompt_len;
	worker->times[worker->times_count++ % KVB_TIMES_KEPT] =
		(struct kvb_time){seq->submit_ns, choice->first_ns, now_ns, seq->prompt_len,
			seq->cached_len, seq->total_len - seq->prompt_len};
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

/* Appends a header that says how many prompt tokens each tier had. */
static void hits_header(const struct kvb_exchange *x, char *out, size_t size)
{
	uint32_t tiers[KVB_SEQ_TIERS] = {0}, gpu = kvb_exchange_cached_tokens(x);

	if (x->worker->store == NULL)
		return;
	for (uint32_t i = 0; i < x->prompt_count; i++)
		for (uint32_t t = 0; t < KVB_SEQ_TIERS; t++)
			tiers[t] += x->choices[i * x->n].seq->first_loaded[t];
	for (uint32_t t = 0; t < KVB_SEQ_TIERS; t++)
		gpu -= tiers[t] < gpu ? tiers[t] : gpu;
	snprintf(out, size, "x-sim-hits: gpu=%u l1=%u nvme=%u l2=%u\r\n", gpu, tiers[0], tiers[1],
		tiers[2]);
}

static void finish_plain(struct kvb_exchange *x)
{
	char headers[400] = "";
	struct kvb_reply reply = {.status = 200, .content_type = "application/json"};
	struct kvb_buf body;
	struct kvb_conn *conn = x->conn;

	if (load_header(x, headers, sizeof(headers) / 2) == NULL)
		headers[0] = '\0';
	hits_header(x, headers + strlen(headers), sizeof(headers) - strlen(headers));
	if (headers[0] != '\0')
		reply.before_length = headers;
	x->api->plain(x);
	kvb_shared_store(x);
	kvb_nixl_computed(x);
	body = x->out;
	x->out = (struct kvb_buf){0};
	kvb_conn_set_exchange(conn, NULL);
	exchange_destroy(x);
	kvb_http_reply(conn, &reply, body.data, body.len);
	kvb_buf_finish(&body);
}

static void finish_stream(struct kvb_exchange *x)
{
	struct kvb_conn *conn = x->conn;

	x->api->end(x);
	kvb_shared_store(x);
	kvb_nixl_computed(x);
	kvb_conn_set_exchange(conn, NULL);
	exchange_destroy(x);
	kvb_http_stream_end(conn);
}

/* Ends the exchange with an error, as a failed load of KV does in vLLM. */
void kvb_exchange_give_up(struct kvb_exchange *x)
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
		kvb_exchange_give_up(x);
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
	return sum > kvb_exchange_cached_tokens(x) ? sum - kvb_exchange_cached_tokens(x) : 0;
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
	kvb_buf_json(out, text.data, text.len);
	kvb_buf_finish(&text);
}

void kvb_buf_error_event(struct kvb_buf *out)
{
	kvb_buf_text(out, "data: {\"error\": {\"message\": \"Internal server error\", \"type\": "
			  "\"InternalServerError\", \"param\": null, \"code\": 500}}\n\n");
}
