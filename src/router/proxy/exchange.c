/*
 * exchange.c - creates exchanges, changes their states, and ends them in one place.
 */
#include "proxy/exchange.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "http/target.h"
#include "proxy/attempt.h"
#include "proxy/fidelity.h"
#include "proxy/groups.h"
#include "proxy/gates.h"
#include "proxy/kept.h"
#include "proxy/pd.h"
#include "proxy/rate.h"
#include "proxy/tracing.h"
#include "proxy/understand.h"
#include "proxy/used.h"

#define BIT(state) (1u << (state))

/* Allowed next states, by present state. A retry goes back to ROUTING. */
static const unsigned request_next[KVW_REQUEST_STATES] = {
	[KVW_REQUEST_READ_HEAD] = BIT(KVW_REQUEST_READ_BODY) | BIT(KVW_REQUEST_ROUTING) |
		BIT(KVW_REQUEST_WAITING),
	[KVW_REQUEST_READ_BODY] = BIT(KVW_REQUEST_ROUTING),
	[KVW_REQUEST_ROUTING] = BIT(KVW_REQUEST_WAITING) | BIT(KVW_REQUEST_CONNECTING) |
		BIT(KVW_REQUEST_SENDING),
	[KVW_REQUEST_WAITING] = BIT(KVW_REQUEST_ROUTING),
	[KVW_REQUEST_CONNECTING] = BIT(KVW_REQUEST_SENDING) | BIT(KVW_REQUEST_ROUTING),
	[KVW_REQUEST_SENDING] = BIT(KVW_REQUEST_SENT) | BIT(KVW_REQUEST_ROUTING),
	[KVW_REQUEST_SENT] = BIT(KVW_REQUEST_ROUTING),
};

#define OVER (BIT(KVW_RESPONSE_DONE) | BIT(KVW_RESPONSE_ENDED))

static const unsigned response_next[KVW_RESPONSE_STATES] = {
	[KVW_RESPONSE_NONE] = BIT(KVW_RESPONSE_WAITING) | OVER,
	[KVW_RESPONSE_WAITING] = BIT(KVW_RESPONSE_NONE) | BIT(KVW_RESPONSE_HELD) | OVER,
	[KVW_RESPONSE_HELD] = BIT(KVW_RESPONSE_NONE) | BIT(KVW_RESPONSE_STREAMING) | OVER,
	[KVW_RESPONSE_STREAMING] = BIT(KVW_RESPONSE_PAUSED) | OVER,
	[KVW_RESPONSE_PAUSED] = BIT(KVW_RESPONSE_STREAMING) | OVER,
	[KVW_RESPONSE_DONE] = BIT(KVW_RESPONSE_ENDED),
};

/* Notes a bug of kvway in one exchange. An assertion would end every stream. */
static void note_fault(struct kvw_exchange *x, const char *side, unsigned from, unsigned to)
{
	/* The id may lie in the raw head, which is freed when the exchange ends. */
	struct kvw_slice id = kvw_exchange_ended(x) ? KVW_SLICE("") : x->request_id;

	kvw_error("proxy", "internal error: forbidden step of an exchange, which is cut "
			   "side=%s from=%u to=%u request_id=%.*s",
		side, from, to, (int)id.len, id.data);
	kvw_metrics_add(x->loop->metrics, KVW_COUNT_INTERNAL_ERRORS, 1);
	x->faulty = true;
}

void kvw_exchange_request_state(struct kvw_exchange *x, enum kvw_request_state state)
{
	if ((request_next[x->request_state] & BIT(state)) == 0) {
		note_fault(x, "request", x->request_state, state);
		return;
	}
	x->request_state = state;
	kvw_trace_note(x->trace, x->loop->now_ns, KVW_TRACE_REQUEST, state);
}

void kvw_exchange_response_state(struct kvw_exchange *x, enum kvw_response_state state)
{
	if ((response_next[x->response_state] & BIT(state)) == 0) {
		note_fault(x, "response", x->response_state, state);
		return;
	}
	x->response_state = state;
	if (state != KVW_RESPONSE_ENDED) /* an end is noted by kvw_exchange_end */
		kvw_trace_note(x->trace, x->loop->now_ns, KVW_TRACE_RESPONSE, state);
}

/* --- waiting (wait.h) --- */

void kvw_wait_begin(struct kvw_exchange *x, const struct kvw_wait_kind *kind, int64_t until_ns)
{
	struct kvw_loop *loop = x->loop;

	kvw_exchange_request_state(x, KVW_REQUEST_WAITING);
	x->wait.kind = kind;
	x->wait.since_ns = loop->now_ns;
	x->wait.until_ns = until_ns;
	if (kind->list != NULL)
		TAILQ_INSERT_TAIL(kind->list(loop), x, entry);
	if (until_ns > 0)
		kvw_timer_set(&loop->timers, &x->timer, kind->timer, until_ns);
	kvw_trace_wait(x->trace, loop->now_ns, kind->name, until_ns);
}

void kvw_wait_end(struct kvw_exchange *x, enum kvw_waited how)
{
	const struct kvw_wait_kind *kind = x->wait.kind;
	int64_t waited_ns = x->loop->now_ns - x->wait.since_ns;

	if (kind->list != NULL)
		TAILQ_REMOVE(kind->list(x->loop), x, entry);
	kvw_timer_clear(&x->loop->timers, &x->timer);
	if (kind->ended != NULL)
		kind->ended(x, how);
	if (x->wait.longest == NULL || waited_ns > x->wait.longest_ns) {
		x->wait.longest = kind;
		x->wait.longest_ns = waited_ns;
	}
	x->wait.total_ns += waited_ns;
	x->wait.kind = NULL;
	if (!kvw_exchange_ended(x))
		kvw_exchange_request_state(x, KVW_REQUEST_ROUTING);
}

void kvw_wait_expire(struct kvw_exchange *x)
{
	const struct kvw_wait_kind *kind = x->wait.kind;

	kvw_wait_end(x, KVW_WAITED_EXPIRED);
	kind->expired(x);
}

/* --- its life --- */

struct kvw_exchange *kvw_exchange_create(struct kvw_client *client, kvw_timer_fn on_timer)
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
	memset(x, 0, offsetof(struct kvw_exchange, tried.ids));
	x->tried.text[0] = '\0';
	x->loop = loop;
	x->client = client;
	x->in_force = kvw_in_force_take(loop);
	x->config = x->in_force->config;
	x->strategy = x->in_force->strategy;
	x->timer.fn = on_timer;
	x->start_ns = client->head_start_ns != 0 ? client->head_start_ns : loop->now_ns;
	kvw_upload_pace_begin(&x->upload, x->start_ns);
	x->wall_ns = loop->now_ns + loop->wall_offset_ns;
	x->trace = kvw_trace_begin(loop->trace, x->start_ns, x->start_ns + loop->wall_offset_ns);
	if (x->trace == NULL && loop->trace != NULL)
		kvw_metrics_add(loop->metrics, KVW_COUNT_UNTRACED, 1);
	x->end = KVW_END_COMPLETE;
	x->upload.in = client->in;
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
	kvw_token_list_put(x->exact.list);
	x->exact.list = NULL;
	kvw_account_update(loop->shared->memory, &x->upload.memory, 0);
	if (x->whole && x->upload.body.done) {
		kvw_upload_free_body(&x->upload, &loop->blocks);
		x->whole = false;
	}
}

bool kvw_exchange_is_idempotent(const struct kvw_exchange *x)
{
	static const char *const methods[] = {"GET", "HEAD", "PUT", "DELETE", "OPTIONS"};

	for (size_t i = 0; i < sizeof(methods) / sizeof(methods[0]); i++)
		if (kvw_slice_equal(x->method, kvw_slice_of(methods[i])))
			return true;
	return false;
}

/* Compares the prediction, which was made from the workers' reports, with the answer's cached
 * tokens. */
static void check_prediction(const struct kvw_exchange *x, struct kvw_request_record *record)
{
	if (x->attempt.worker == NULL || !record->prompt_known || !record->cached_known)
		return;
	record->exact = true;
	record->exact_right = kvw_sources_check(x->loop->sources, x->attempt.worker,
		record->predicted_cached, record->cached_tokens);
}

/* Scales predicted cached tokens, which were estimated from bytes of text, to the prompt's real
 * number of tokens. */
static uint32_t share_of_real_prompt(const struct kvw_exchange *x, uint32_t predicted)
{
	uint32_t prompt = x->attempt.decision.prompt_tokens;

	if (!x->usage.prompt_known || x->attempt.decision.exact || prompt == 0)
		return predicted;
	return (uint32_t)((uint64_t)predicted * x->usage.prompt_tokens / prompt);
}

/* Reports the exchange to metrics and access log. */
static void report_exchange(struct kvw_exchange *x, enum kvw_end end)
{
	struct kvw_loop *loop = x->loop;
	struct kvw_request_record record = {
		.wall_ns = x->wall_ns,
		.start_ns = x->start_ns,
		.total_ns = loop->now_ns - x->start_ns,
		.first_token_ns = x->first_token_ns != 0 ? x->first_token_ns - x->start_ns : 0,
		.added_ns = x->added_ns,
		.end = end,
		.timeout = end == KVW_END_TIMEOUT ? x->timeout : NULL,
		.waited_for = x->wait.longest == NULL ? NULL : x->wait.longest->name,
		.waited_ns = x->wait.total_ns,
		.status = x->status,
		.api = x->path.api,
		.method = x->method,
		.target = kvw_target_path(x->target),
		.request_id = x->request_id,
		.model = kvw_slice_of(x->model == NULL ? NULL : x->model->name),
		.model_label = x->model == NULL ? 0 : x->model->index + 1,
		.group = kvw_slice_of(x->division.group == NULL ? NULL : x->division.group->group),
		.group_label = kvw_groups_label(x),
		.client =
			kvw_slice_of(x->caller.via[0] != '\0' ? x->caller.via : x->client->address),
		.key = kvw_slice_of(x->caller.key == NULL ? NULL : x->caller.key->name),
		.tenant = kvw_slice_of(x->caller.key == NULL ? NULL : x->caller.key->tenant),
		.client_certificate = kvw_slice_of(x->client->certificate),
		.worker_url =
			kvw_slice_of(x->attempt.worker == NULL ? NULL : x->attempt.worker->url),
		.worker_id = x->attempt.worker == NULL ? UINT32_MAX : x->attempt.worker->id,
		.reason = x->attempt.decision.reason,
		.knowledge = x->attempt.decision.knowledge,
		.attempts = x->tried.attempts,
		.stale_retries = x->tried.fresh,
		.request_bytes = x->upload.body.payload_bytes,
		.response_bytes = x->attempt.answer.payload_bytes,
		.stream = x->event_stream,
		.stream_chunks = x->stream_chunks,
		.prompt_known = x->usage.prompt_known,
		.cached_known = x->usage.cached_known,
		.completion_known = x->usage.completion_known,
		.prompt_tokens = x->usage.prompt_tokens,
		.cached_tokens = x->usage.cached_tokens,
		.completion_tokens = x->usage.completion_tokens,
		.trace = kvw_trace_context(x->trace),
	};

	if (x->pd != NULL)
		kvw_pd_record(x->pd, &record);
	/* Only a strategy that looks prompts up predicts their cached tokens. A decoder whose
	 * prompt was prefilled elsewhere reports none. */
	if (x->attempt.decision.chains > 0 && x->attempt.decision.reason != KVW_REASON_SPLIT) {
		record.predicted_prompt = x->attempt.decision.prompt_tokens;
		for (size_t tier = 0; tier < KVW_TIER_COUNT; tier++)
			record.predicted_cached += x->attempt.decision.hit_tokens[tier];
		record.predicted_fragments =
			share_of_real_prompt(x, x->attempt.decision.fragment_tokens);
		record.predicted_cached += x->attempt.decision.fragment_tokens;
		record.predicted_cached = share_of_real_prompt(x, record.predicted_cached);
	}
	if (x->attempt.decision.exact && loop->sources != NULL &&
		x->attempt.decision.reason != KVW_REASON_SPLIT)
		check_prediction(x, &record);
	kvw_used_end(x, &record);
	if (x->admission.entered)
		kvw_kept_count(x, end);
	kvw_metrics_record(loop->metrics, &record);
	kvw_access_log_write(loop->access_log, loop->index, &record);
	kvw_metrics_gauge(loop->metrics, KVW_GAUGE_EXCHANGES, -1);
}

/* Learns bytes per token, for the model and for prompts with this prompt's beginning. */
static void learn_ratio(const struct kvw_measure *measure, struct kvw_model *model,
	struct kvw_ratios *ratios, uint32_t prompt_tokens)
{
	if (measure->units == 0)
		return;
	if (model != NULL)
		kvw_model_learn(model, measure->units, prompt_tokens);
	kvw_ratios_learn(ratios, &measure->keys, prompt_tokens);
}

/* kvway learns here of a request through it that empties a cache, before the worker's metrics show
 * the loss, if they ever do. Only after a refusal is the cache certain to be unchanged. */
void kvw_exchange_note_emptied(struct kvw_exchange *x)
{
	if (!x->path.empties_cache || !x->attempt.decided || x->emptied)
		return;
	x->emptied = x->status < 400 || x->status >= 500;
	if (x->emptied)
		kvw_fleet_cache_lost(
			x->loop->fleet, x->attempt.worker, "a request that empties it");
}

void kvw_exchange_end(struct kvw_exchange *x, enum kvw_end end)
{
	struct kvw_loop *loop = x->loop;

	if (kvw_exchange_ended(x)) {
		note_fault(x, "end", x->response_state, x->response_state);
		return;
	}
	kvw_exchange_response_state(x, KVW_RESPONSE_ENDED);
	kvw_timer_clear(&loop->timers, &x->timer);
	kvw_timer_clear(&loop->timers, &x->deadline);
	kvw_timer_clear(&loop->timers, &x->silence.timer);
	if (x->wait.kind != NULL)
		kvw_wait_end(x, KVW_WAITED_LEFT);
	if (x->dry == NULL && x->usage.prompt_known)
		learn_ratio(&x->measure, x->model, loop->fleet->ratios, x->usage.prompt_tokens);
	if (x->fidelity != NULL)
		kvw_fidelity_client_end(x, end);
	kvw_rate_end(x, end);
	kvw_exchange_note_emptied(x);
	kvw_attempt_end(x, end == KVW_END_COMPLETE);
	kvw_gates_exit(x);
	if (x->dry == NULL)
		report_exchange(x, end);
	kvw_pd_end(x);
	if (loop->joins)
		kvw_tracing_end(x);
	kvw_trace_end(x->trace, loop->now_ns, end, x->status, x->path.api);
	x->trace = NULL;
	if (x->attempt.worker != NULL)
		kvw_links_unhold(&loop->links, x->attempt.worker);
	kvw_exchange_drop_request(x);
	kvw_model_let_go(x->model);
	x->model = NULL;
	kvw_chain_clear(&x->upload.in, &loop->blocks);
	kvw_model_let_go(x->named.meant);
	free((char *)x->named.text.data);
	x->named = (struct kvw_named){0};
	kvw_keyring_unref(x->caller.keyring);
	x->caller.keyring = NULL;
	x->caller.key = NULL;
	if (loop->head_owner == x)
		loop->head_owner = NULL;
	TAILQ_INSERT_TAIL(&loop->ended, x, entry);
	if (x->faulty) /* a faulty exchange's part of the answer may be wrong */
		x->client->reset = x->close_client = true;
	if (x->dry == NULL)
		kvw_client_exchange_ended(x->client);
}

void kvw_exchange_cut(struct kvw_exchange *x, enum kvw_end end)
{
	/* An answer without length or chunks can be shown to be incomplete only by a reset. */
	x->client->reset = x->pass == KVW_PASS_PAYLOAD;
	x->close_client = true;
	kvw_exchange_end(x, end);
}
