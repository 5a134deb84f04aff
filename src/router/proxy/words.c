/*
 * words.c - the names of a request's states, timers and ends, for its trace.
 */
#include "admin/metrics.h"
#include "feeds/sources.h"
#include "proxy/exchange.h"
#include "proxy/proxy.h"
#include "proxy/retry.h"
#include "proxy/step.h"
#include "trace/trace.h"

static const char *const request_states[KVW_REQUEST_STATES] = {
	[KVW_REQUEST_READ_HEAD] = "read_head",
	[KVW_REQUEST_READ_BODY] = "read_body",
	[KVW_REQUEST_ROUTING] = "routing",
	[KVW_REQUEST_WAITING] = "waiting",
	[KVW_REQUEST_CONNECTING] = "connecting",
	[KVW_REQUEST_SENDING] = "sending",
	[KVW_REQUEST_SENT] = "sent",
};

static const char *const response_states[KVW_RESPONSE_STATES] = {
	[KVW_RESPONSE_NONE] = "none",
	[KVW_RESPONSE_WAITING] = "waiting",
	[KVW_RESPONSE_HELD] = "held",
	[KVW_RESPONSE_STREAMING] = "streaming",
	[KVW_RESPONSE_PAUSED] = "paused",
	[KVW_RESPONSE_DONE] = "done",
	[KVW_RESPONSE_ENDED] = "ended",
};

/* Timers have the names of the keys that set them, where there is one. */
static const char *const timers[] = {
	[KVW_TIMER_CLIENT_IDLE] = "timeouts.client_idle",
	[KVW_TIMER_HEAD] = "timeouts.head",
	[KVW_TIMER_BODY] = "timeouts.body",
	[KVW_TIMER_BODY_RATE] = "limits.body_rate",
	[KVW_TIMER_WRITE] = "timeouts.client_write",
	[KVW_TIMER_LINGER] = "linger",
	[KVW_TIMER_CONNECT] = "timeouts.connect",
	[KVW_TIMER_FIRST_TOKEN] = "timeouts.first_token",
	[KVW_TIMER_ATTEMPT] = "timeouts.attempt",
	[KVW_TIMER_REQUEST] = "timeouts.request",
	[KVW_TIMER_KEY] = "key",
	[KVW_TIMER_STREAM_IDLE] = "timeouts.stream_idle",
	[KVW_TIMER_PARK] = "models",
	[KVW_TIMER_WAKE] = "discovery.wake.hold",
	[KVW_TIMER_TOKENS] = "kvaware.tokens.timeout",
	[KVW_TIMER_SHADOW] = "shadow",
	[KVW_TIMER_PREFILL] = "prefill",
	[KVW_TIMER_LEASE] = "pd.lease",
	[KVW_TIMER_SILENCE] = "http.keep_alive_comments",
};

static const char *const verdicts[] = {
	[KVW_STEP_ON] = "goes on",
	[KVW_STEP_CHOSEN] = "chooses a worker",
	[KVW_STEP_WAITS] = "waits",
	[KVW_STEP_ANSWERED] = "answers",
	[KVW_STEP_AGAIN] = "begins again",
};

static const char *const retries[] = {
	[KVW_RETRY_NO] = "gives up",
	[KVW_RETRY_FRESH] = "same worker, new connection",
	[KVW_RETRY_OTHER] = "another worker",
};

static const char *const grades[] = {
	[KVW_GRADE_NONE] = "none",
	[KVW_GRADE_GOOD] = "good",
	[KVW_GRADE_BAD] = "bad",
	[KVW_GRADE_TURNED_BAD] = "turned bad",
};

static const char *const legs[KVW_PD_LEGS] = KVW_PD_LEG_NAMES;
static const char *const decodes[KVW_PD_DECODES] = KVW_PD_DECODE_NAMES;

#define WORDS(names) ((struct kvw_trace_words){names, sizeof(names) / sizeof((names)[0])})

enum kvw_err kvw_proxy_create_trace(const struct kvw_config *config,
	const struct kvw_trace_sampling *sampling, size_t loops, struct kvw_trace **out)
{
	const struct kvw_trace_options options = {
		.loops = loops,
		.requests = (size_t)config->trace_requests,
		.kept = (size_t)config->trace_failed,
		.sampling = *sampling,
		.words =
			{
				[KVW_TRACE_REQUEST] = WORDS(request_states),
				[KVW_TRACE_RESPONSE] = WORDS(response_states),
				[KVW_TRACE_TIMER] = WORDS(timers),
				[KVW_TRACE_FAILED] = WORDS(retries),
				[KVW_TRACE_STEP] = WORDS(verdicts),
				[KVW_TRACE_GRADE] = WORDS(grades),
				[KVW_TRACE_PREFILLED] = WORDS(legs),
				[KVW_TRACE_DECODE] = WORDS(decodes),
			},
	};

	return kvw_trace_create(&options, out);
}
