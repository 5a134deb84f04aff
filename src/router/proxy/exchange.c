/*
 * exchange.c - the life of an exchange: creation, states, and the one place where it ends.
 */
#include "proxy/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "proxy/prepare.h"
#include "proxy/response.h"
#include "proxy/send.h"
#include "proxy/understand.h"

#define BIT(state) (1u << (state))

/* Allowed next states, by present state. A retry goes back to CONNECTING or SENDING. */
static const unsigned request_next[KVW_REQUEST_STATES] = {
	[KVW_REQUEST_READ_HEAD] = BIT(KVW_REQUEST_READ_BODY) | BIT(KVW_REQUEST_PREPARING),
	[KVW_REQUEST_READ_BODY] = BIT(KVW_REQUEST_PREPARING),
	[KVW_REQUEST_PREPARING] = BIT(KVW_REQUEST_CONNECTING) | BIT(KVW_REQUEST_SENDING),
	[KVW_REQUEST_CONNECTING] = BIT(KVW_REQUEST_SENDING) | BIT(KVW_REQUEST_PREPARING),
	[KVW_REQUEST_SENDING] = BIT(KVW_REQUEST_SENT) | BIT(KVW_REQUEST_PREPARING),
	[KVW_REQUEST_SENT] = BIT(KVW_REQUEST_PREPARING),
};

static const unsigned response_next[KVW_RESPONSE_STATES] = {
	[KVW_RESPONSE_NONE] = BIT(KVW_RESPONSE_WAITING) | BIT(KVW_RESPONSE_DONE) |
		BIT(KVW_RESPONSE_FAILED),
	[KVW_RESPONSE_WAITING] = BIT(KVW_RESPONSE_NONE) | BIT(KVW_RESPONSE_HELD) |
		BIT(KVW_RESPONSE_STREAMING) | BIT(KVW_RESPONSE_DONE) | BIT(KVW_RESPONSE_FAILED),
	[KVW_RESPONSE_HELD] = BIT(KVW_RESPONSE_NONE) | BIT(KVW_RESPONSE_STREAMING) |
		BIT(KVW_RESPONSE_DONE) | BIT(KVW_RESPONSE_FAILED),
	[KVW_RESPONSE_STREAMING] = BIT(KVW_RESPONSE_DONE) | BIT(KVW_RESPONSE_FAILED),
	[KVW_RESPONSE_DONE] = BIT(KVW_RESPONSE_FAILED),
};

/* A bug of ours in one exchange must not end every stream, as an assertion would. */
static void note_fault(struct kvw_exchange *x, const char *side, unsigned from, unsigned to)
{
	/* The id may lie in the raw head, which goes with the end. */
	struct kvw_slice id = x->ended ? KVW_SLICE("") : x->request_id;

	kvw_error("proxy", "internal error: forbidden step of an exchange, which is cut "
			   "side=%s from=%u to=%u request_id=%.*s",
		side, from, to, (int)id.len, id.data);
	kvw_metrics_add(x->loop->metrics, KVW_COUNT_INTERNAL_ERRORS, 1);
	if (!x->faulty)
		x->loop->faulty_exchanges++;
	x->faulty = true;
}

void kvw_exchange_request_state(struct kvw_exchange *x, enum kvw_request_state state)
{
	if (request_next[x->request_state] & BIT(state))
		x->request_state = state;
	else
		note_fault(x, "request", x->request_state, state);
}

void kvw_exchange_response_state(struct kvw_exchange *x, enum kvw_response_state state)
{
	if (response_next[x->response_state] & BIT(state))
		x->response_state = state;
	else
		note_fault(x, "response", x->response_state, state);
}

void kvw_exchange_cut_faulty(struct kvw_loop *loop)
{
	struct kvw_client *client, *next;

	for (client = TAILQ_FIRST(&loop->clients); client != NULL; client = next) {
		next = TAILQ_NEXT(client, entry);
		if (client->exchange != NULL && client->exchange->faulty)
			kvw_client_close(client, true);
	}
	loop->faulty_exchanges = 0;
}

struct kvw_exchange *kvw_exchange_create(struct kvw_client *client)
{
	struct kvw_loop *loop = client->loop;
	struct kvw_exchange *x = TAILQ_FIRST(&loop->free_exchanges);

	if (x != NULL) {
		TAILQ_REMOVE(&loop->free_exchanges, x, entry);
		loop->free_exchange_count--;
	} else {
		x = malloc(sizeof(*x));
		if (x == NULL)
			return NULL;
	}
	memset(x, 0, offsetof(struct kvw_exchange, usage));
	x->tried_text[0] = '\0';
	x->loop = loop;
	x->client = client;
	x->timer.fn = kvw_request_timeout;
	x->start_ns = client->head_start_ns != 0 ? client->head_start_ns : loop->now_ns;
	x->rate_from_ns = x->start_ns;
	x->wall_ns = loop->now_ns + loop->wall_offset_ns;
	x->end = KVW_END_COMPLETE;
	x->in = client->in;
	memset(&client->in, 0, sizeof(client->in));
	client->exchange = x;
	kvw_usage_init(&x->usage);
	kvw_metrics_gauge(loop->metrics, KVW_GAUGE_EXCHANGES, 1);
	return x;
}

void kvw_exchange_drop_request(struct kvw_exchange *x)
{
	struct kvw_loop *loop = x->loop;

	kvw_request_scan_release(x);
	kvw_token_list_put(x->token_list);
	x->token_list = NULL;
	if (x->body_memory > 0) {
		kvw_shared_body_release(loop->shared, x->body_memory);
		kvw_metrics_gauge(loop->metrics, KVW_GAUGE_BODY_BYTES, -(int64_t)x->body_memory);
		x->body_memory = 0;
	}
	if (x->whole && x->body.done && x->in.first != NULL) {
		/* The first block stays: it holds the raw head that the log names. */
		struct kvw_block *rest = x->in.first->next;

		while (rest != NULL) {
			struct kvw_block *next = rest->next;

			kvw_block_put(&loop->blocks, rest);
			rest = next;
		}
		x->in.first->next = NULL;
		x->in.last = x->in.first;
		x->whole = false;
	}
}

static struct kvw_slice without_query(struct kvw_slice target)
{
	const char *mark = target.len == 0 ? NULL : memchr(target.data, '?', target.len);

	if (mark != NULL)
		target.len = (size_t)(mark - target.data);
	return target;
}

/* Compares the prediction, made from what sources report, with the answer's cached tokens. */
static void check_prediction(const struct kvw_exchange *x, struct kvw_request_record *record)
{
	if (x->attempt.worker == NULL || !record->prompt_known || !record->cached_known)
		return;
	record->exact = true;
	record->exact_right = kvw_sources_check(
		x->loop->sources, x->attempt.worker, record->predicted_cached, record->cached_tokens);
}

/* Metrics and access log. */
static void report(struct kvw_exchange *x, enum kvw_end end)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_request_record record = {
		.wall_ns = x->wall_ns,
		.start_ns = x->start_ns,
		.total_ns = loop->now_ns - x->start_ns,
		.first_token_ns = x->first_token ? x->first_token_ns - x->start_ns : 0,
		.added_ns = x->added_ns,
		.end = end,
		.status = x->status,
		.api = x->path.api,
		.method = x->method,
		.target = without_query(x->target),
		.request_id = x->request_id,
		.model = kvw_slice_of(x->model == NULL ? NULL : x->model->name),
		.model_label = x->model == NULL ? 0 : x->model->index + 1,
		.client = kvw_slice_of(x->client->address),
		.worker_url = kvw_slice_of(x->attempt.worker == NULL ? NULL : x->attempt.worker->url),
		.worker_id = x->attempt.worker == NULL ? UINT32_MAX : x->attempt.worker->id,
		.reason = x->attempt.decision.reason,
		.attempts = x->attempts,
		.stale_retries = x->stale_retries,
		.request_bytes = x->body.payload_bytes,
		.response_bytes = x->attempt.answer.payload_bytes,
		.stream = x->event_stream,
		.stream_chunks = x->stream_chunks,
		.prompt_known = x->usage.prompt_known,
		.cached_known = x->usage.cached_known,
		.completion_known = x->usage.completion_known,
		.prompt_tokens = x->usage.prompt_tokens,
		.cached_tokens = x->usage.cached_tokens,
		.completion_tokens = x->usage.completion_tokens,
	};

	/* Only a strategy that looks prompts up predicts what is cached of them. */
	if (x->attempt.decision.chains > 0) {
		record.predicted_prompt = x->attempt.decision.prompt_tokens;
		for (size_t tier = 0; tier < KVW_TIER_COUNT; tier++)
			record.predicted_cached += x->attempt.decision.hit_tokens[tier];
	}
	if (x->attempt.decision.exact && loop->sources != NULL)
		check_prediction(x, &record);
	kvw_metrics_record(loop->metrics, &record);
	kvw_access_log_write(loop->access_log, loop->index, &record);
	kvw_metrics_gauge(loop->metrics, KVW_GAUGE_EXCHANGES, -1);
}

/* Bytes per token, of the model and of prompts that begin like this one. */
static void learn_ratio(struct kvw_exchange *x)
{
	if (!x->usage.prompt_known || x->prompt_units == 0)
		return;
	if (x->model != NULL)
		kvw_model_learn(x->model, x->prompt_units, x->usage.prompt_tokens);
	kvw_ratios_learn(x->loop->fleet->ratios, &x->ratio_keys, x->usage.prompt_tokens);
}

/* A request through kvway that empties a cache is known here before the worker's metrics show it, if
 * they ever do. Only a refusal is sure to have left the cache as it was. */
void kvw_exchange_note_emptied(struct kvw_exchange *x)
{
	if (!x->path.empties_cache || !x->attempt.decided || x->emptied)
		return;
	x->emptied = x->status < 400 || x->status >= 500;
	if (x->emptied)
		kvw_fleet_cache_lost(x->loop->fleet, x->attempt.worker, "a request that empties it");
}

void kvw_exchange_end(struct kvw_exchange *x, enum kvw_end end)
{
	struct kvw_loop *loop = x->loop;

	if (x->ended) {
		note_fault(x, "end", 1, 1);
		return;
	}
	x->ended = true;
	if (end != KVW_END_COMPLETE && end != KVW_END_LOCAL)
		kvw_exchange_response_state(x, KVW_RESPONSE_FAILED);
	kvw_timer_clear(&loop->timers, &x->timer);
	if (x->token_job != NULL)
		kvw_prepare_cancel(x);
	if (x->parked)
		TAILQ_REMOVE(&loop->parked, x, entry);
	x->parked = false;
	learn_ratio(x);
	kvw_exchange_note_emptied(x);
	kvw_attempt_end(x, end == KVW_END_COMPLETE);
	report(x, end);
	kvw_exchange_drop_request(x);
	kvw_chain_clear(&x->in, &loop->blocks);
	if (loop->head_owner == x)
		loop->head_owner = NULL;
	TAILQ_INSERT_TAIL(&loop->ended, x, entry);
	if (x->faulty) /* what the client has of the answer may be wrong */
		x->client->reset = x->close_client = true;
	kvw_client_exchange_ended(x->client);
}

void kvw_exchange_cut(struct kvw_exchange *x)
{
	/* Without length or chunks only a reset shows that an answer was cut. */
	x->client->reset = x->pass == KVW_PASS_PAYLOAD;
	x->close_client = true;
	kvw_exchange_end(x, x->end);
}

void kvw_exchange_client_gone(struct kvw_exchange *x)
{
	if (x->ended)
		return;
	kvw_metrics_add(x->loop->metrics, KVW_COUNT_CLIENT_GONE, 1);
	kvw_exchange_end(x, KVW_END_CLIENT_GONE);
}

void kvw_exchange_flushed(struct kvw_exchange *x)
{
	size_t waiting = x->client->out.bytes;

	if (x->response_state == KVW_RESPONSE_DONE) {
		if (waiting == 0)
			kvw_exchange_end(x, x->end);
		return;
	}
	if (x->paused && waiting <= x->loop->config->limits_low_water) {
		x->paused = false;
		x->last_data_ns = x->loop->now_ns;
		kvw_loop_timer(x->loop, &x->timer, KVW_TIMER_STREAM_IDLE,
			x->loop->config->timeout_stream_idle_ms); /* stopped by the pause */
		if (x->attempt.link != NULL && x->attempt.link->io.readable)
			kvw_response_read(x);
	}
}
