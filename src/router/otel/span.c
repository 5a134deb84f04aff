/*
 * span.c - see span.h.
 *
 * One pass over the notes of a record, in their order. A note begins a span (an attempt, a leg, a
 * wait), ends one, or is an event of the innermost span that it speaks of: what happens between an
 * attempt's begin and its end belongs to that attempt, all else to the request.
 *
 * The n-th attempt or leg has the id that its worker got as parent (join.c); waits have ids that no
 * worker knows.
 */
#include "otel/span.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/record.h"
#include "openai/api_path.h"

#define WAIT_IDS UINT64_C(0x8000) /* ids of waits begin here, those of attempts and legs at 1 */
#define PROVIDER "vllm"

/* The pass over one record. */
struct pass {
	struct kvw_spans *out;
	const struct kvw_span_facts *facts;
	const struct kvw_trace_story *story;
	struct kvw_slice model;                          /* as the client calls it */
	struct kvw_span *request, *attempt, *leg, *wait; /* NULL: none is under way */
	uint64_t calls, waits, attempts; /* calls: attempts and legs */
	int64_t first_token_us; /* 0: there was none */
};

/* --- pieces --- */

static struct kvw_slice note_text(const struct pass *p, const struct kvw_trace_note *note)
{
	return kvw_trace_story_text(p->story, note->text_word, note->text_len);
}

static struct kvw_attribute text_of(struct kvw_slice key, struct kvw_slice value)
{
	return (struct kvw_attribute){.key = key, .type = KVW_ATTRIBUTE_TEXT, .text = value};
}

static void add(struct kvw_span *span, struct kvw_attribute attribute)
{
	if (span->attribute_count < KVW_ATTRIBUTES_MOST)
		span->attributes[span->attribute_count++] = attribute;
}

/* Adds a text unless it is empty. */
static void add_text(struct kvw_span *span, struct kvw_slice key, struct kvw_slice value)
{
	if (value.len > 0)
		add(span, text_of(key, value));
}

static void add_name(struct kvw_span *span, struct kvw_slice key, const char *value)
{
	add_text(span, key, kvw_slice_of(value));
}

static void add_int(struct kvw_span *span, struct kvw_slice key, int64_t value)
{
	add(span, (struct kvw_attribute){.key = key, .type = KVW_ATTRIBUTE_INT, .number = value});
}

static int64_t time_of(const struct pass *p, uint32_t at_us)
{
	return p->story->wall_ns + (int64_t)at_us * 1000;
}

/* Begins a span; it lasts until the request's end unless it ends before. */
static struct kvw_span *begin(struct pass *p, enum kvw_span_kind kind, uint64_t id, uint32_t at_us)
{
	struct kvw_span *span = &p->out->spans[p->out->count++];

	span->id = id;
	span->parent = p->story->context.span;
	span->kind = kind;
	span->name[0] = '\0';
	span->begin_ns = time_of(p, at_us);
	span->end_ns = p->story->wall_ns + p->story->total_ns;
	span->error = NULL;
	span->message.len = span->attribute_count = 0; /* the array is not cleared: it is large */
	return span;
}

static void end(const struct pass *p, struct kvw_span **span, uint32_t at_us)
{
	if (*span != NULL)
		(*span)->end_ns = time_of(p, at_us);
	*span = NULL;
}

static void fail(struct kvw_span *span, const char *type, struct kvw_slice message)
{
	span->error = type;
	span->message = message;
}

/* Notes an event of the span; key of len 0: without attribute. */
static void event(struct pass *p, struct kvw_span *span, uint32_t at_us, const char *name,
	struct kvw_slice key, struct kvw_slice value)
{
	struct kvw_span_event *to = &p->out->events[p->out->event_count];

	if (p->out->event_count == sizeof(p->out->events) / sizeof(p->out->events[0]))
		return;
	*to = (struct kvw_span_event){.at_ns = time_of(p, at_us), .name = name, .span = span};
	if (value.len > 0)
		to->attribute = text_of(key, value);
	p->out->event_count++;
}

/* Names a span by two words. */
static void set_name(struct kvw_span *span, struct kvw_slice first, struct kvw_slice second)
{
	size_t len = first.len < KVW_SPAN_NAME_MOST ? first.len : KVW_SPAN_NAME_MOST, room;

	if (len > 0)
		memcpy(span->name, first.data, len);
	if (len > 0 && second.len > 0 && len < KVW_SPAN_NAME_MOST)
		span->name[len++] = ' ';
	room = KVW_SPAN_NAME_MOST - len;
	if (second.len > 0)
		memcpy(span->name + len, second.data, second.len < room ? second.len : room);
	len += second.len < room ? second.len : room;
	span->name[len] = '\0';
}

/* --- GenAI --- */

/* Returns the operation by the conventions; NULL: they have none for this API. */
static const char *operation_of(enum kvw_api api)
{
	switch (api) {
	case KVW_API_CHAT:
	case KVW_API_RESPONSES:
	case KVW_API_MESSAGES:
	case KVW_API_CHAT_BATCH:
		return "chat";
	case KVW_API_COMPLETIONS:
	case KVW_API_GENERATE:
		return "text_completion";
	case KVW_API_EMBEDDINGS:
		return "embeddings";
	default:
		return NULL;
	}
}

/* Returns the method of a request; *path has its path, or len 0. */
static struct kvw_slice method_of(const struct kvw_trace_story *story, struct kvw_slice *path)
{
	struct kvw_slice line = kvw_trace_story_text(story, story->path_word, story->path_len);
	const char *blank = line.len == 0 ? NULL : memchr(line.data, ' ', line.len);

	*path = (struct kvw_slice){NULL, 0};
	if (blank == NULL)
		return line;
	path->data = blank + 1;
	path->len = line.len - 1 - (size_t)(blank - line.data);
	line.len = (size_t)(blank - line.data);
	return line;
}

/* Names a span by operation and model, or else by method and API, and adds what all spans of
 * inference have. */
static void describe(const struct pass *p, struct kvw_span *span)
{
	const char *operation = operation_of(p->story->api);
	struct kvw_slice path;

	if (operation == NULL) {
		set_name(span, method_of(p->story, &path),
			kvw_slice_of(kvw_api_name(p->story->api)));
		return;
	}
	set_name(span, kvw_slice_of(operation), p->model);
	add_name(span, KVW_SLICE("gen_ai.operation.name"), operation);
	add_name(span, KVW_SLICE("gen_ai.provider.name"), PROVIDER);
	add_text(span, KVW_SLICE("gen_ai.request.model"), p->model);
}

/* --- attempts, legs, waits --- */

/* Adds host and port of a URL such as http://[::1]:8000/prefix. */
static void add_server(struct kvw_span *span, const char *url)
{
	const char *host = strstr(url, "://"), *past, *colon;

	if (host == NULL)
		return;
	host += 3;
	past = host + strcspn(host, "/@");
	colon = memrchr(host, ':', (size_t)(past - host));
	if (colon == NULL)
		return;
	if (*host == '[' && colon > host + 1)
		add_text(span, KVW_SLICE("server.address"),
			(struct kvw_slice){host + 1, (size_t)(colon - host) - 2});
	else
		add_text(span, KVW_SLICE("server.address"),
			(struct kvw_slice){host, (size_t)(colon - host)});
	add_int(span, KVW_SLICE("server.port"), strtol(colon + 1, NULL, 10));
}

/* Begins the span of an attempt or of a leg. */
static struct kvw_span *begin_call(struct pass *p, const struct kvw_trace_note *note)
{
	struct kvw_span *span =
		begin(p, KVW_SPAN_CLIENT, p->story->context.span + ++p->calls, note->at_us);
	char *url = p->out->urls[span - p->out->spans];

	url[p->facts->worker(p->facts->arg, note->more, url, KVW_SPAN_URL_MOST - 1)] = '\0';
	describe(p, span);
	add_server(span, url);
	add_name(span, KVW_SLICE("kvway.worker"), url);
	add_int(span, KVW_SLICE("kvway.predicted_cached_tokens"), note->number);
	return span;
}

static void on_attempt(struct pass *p, const struct kvw_trace_note *note)
{
	end(p, &p->attempt, note->at_us);
	p->attempt = begin_call(p, note);
	add_name(p->attempt, KVW_SLICE("kvway.decision.reason"),
		kvw_reason_name((enum kvw_reason)note->code));
	if (p->attempts++ > 0)
		add_int(p->attempt, KVW_SLICE("http.request.resend_count"),
			(int64_t)p->attempts - 1);
}

static void on_leg(struct pass *p, const struct kvw_trace_note *note)
{
	end(p, &p->leg, note->at_us);
	p->leg = begin_call(p, note);
	add_name(p->leg, KVW_SLICE("kvway.leg"), "prefill");
}

static void on_prefilled(struct pass *p, const struct kvw_trace_note *note)
{
	const char *result = kvw_trace_code_name(p->facts->trace, KVW_TRACE_PREFILLED, note->code);

	if (p->leg == NULL)
		return;
	add_name(p->leg, KVW_SLICE("kvway.leg.result"), result);
	if (note->number > 0)
		add_int(p->leg, KVW_SLICE("gen_ai.usage.input_tokens"), note->number);
	if (result == NULL || strcmp(result, "ok") != 0)
		fail(p->leg, result == NULL ? "_OTHER" : result, note_text(p, note));
	end(p, &p->leg, note->at_us);
}

static void on_wait(struct pass *p, const struct kvw_trace_note *note)
{
	struct kvw_slice cause = note_text(p, note);

	end(p, &p->wait, note->at_us);
	p->wait = begin(
		p, KVW_SPAN_INTERNAL, p->story->context.span + WAIT_IDS + p->waits++, note->at_us);
	set_name(p->wait, KVW_SLICE("wait"), cause);
	add_text(p->wait, KVW_SLICE("kvway.wait.for"), cause);
	if (note->number > 0)
		add_int(p->wait, KVW_SLICE("kvway.wait.at_most_ms"), note->number);
}

/* --- the request --- */

/* Returns the event for a state from which a reader learns where time went: the whole request is
 * here, it is sent, its client does not keep up. NULL: the state follows from other events. */
static const char *event_of_state(const struct pass *p, struct kvw_slice state)
{
	if (kvw_slice_equal(state, KVW_SLICE("sent")))
		return "request_sent";
	if (p->calls + p->waits == 0 && kvw_slice_equal(state, KVW_SLICE("routing")))
		return "request_read";
	return kvw_slice_equal(state, KVW_SLICE("paused")) ? "client_behind" : NULL;
}

static void on_state(struct pass *p, struct kvw_span *here, uint32_t at_us, struct kvw_slice state)
{
	const char *name = event_of_state(p, state);

	if (name != NULL)
		event(p, here, at_us, name, KVW_SLICE(""), state);
}

static void on_note(struct pass *p, const struct kvw_trace_note *note)
{
	enum kvw_trace_kind kind = (enum kvw_trace_kind)note->kind;
	struct kvw_span *here = p->attempt != NULL ? p->attempt : p->request;
	struct kvw_slice name =
		kvw_slice_of(kvw_trace_code_name(p->facts->trace, kind, note->code));

	switch (kind) {
	case KVW_TRACE_REQUEST: /* noted before the wait for which it stands, and at its end */
		end(p, &p->wait, note->at_us);
		on_state(p, here, note->at_us, name);
		break;
	case KVW_TRACE_RESPONSE:
		on_state(p, here, note->at_us, name);
		break;
	case KVW_TRACE_STEP:
		event(p, p->request, note->at_us, "step", KVW_SLICE("kvway.step"),
			note_text(p, note));
		break;
	case KVW_TRACE_WAIT:
		on_wait(p, note);
		break;
	case KVW_TRACE_ATTEMPT:
		on_attempt(p, note);
		break;
	case KVW_TRACE_LEG:
		on_leg(p, note);
		break;
	case KVW_TRACE_PREFILLED:
		on_prefilled(p, note);
		break;
	case KVW_TRACE_FAILED:
		if (p->attempt != NULL)
			fail(p->attempt, "_OTHER", note_text(p, note));
		event(p, here, note->at_us, "failed", KVW_SLICE("kvway.why"), note_text(p, note));
		break;
	case KVW_TRACE_FIRST_TOKEN:
		here->error = NULL; /* it went well on another connection to the same worker */
		p->first_token_us = note->at_us;
		event(p, here, note->at_us, "first_token", KVW_SLICE(""), name);
		break;
	case KVW_TRACE_ATTEMPT_END:
		end(p, &p->attempt, note->at_us);
		break;
	case KVW_TRACE_ANSWER:
		p->request->message = note_text(p, note);
		event(p, p->request, note->at_us, "answer", KVW_SLICE("kvway.message"),
			note_text(p, note));
		break;
	case KVW_TRACE_GRADE:
		if (!kvw_slice_equal(name, KVW_SLICE("good")))
			event(p, here, note->at_us, "grade", KVW_SLICE("kvway.name"), name);
		break;
	case KVW_TRACE_TIMER:
	case KVW_TRACE_CLIENT:
	case KVW_TRACE_DECODE:
		event(p, here, note->at_us, kvw_trace_kind_name(kind), KVW_SLICE("kvway.name"),
			name);
		break;
	case KVW_TRACE_END:
	case KVW_TRACE_KINDS:
		break;
	}
}

static void add_http(struct pass *p)
{
	const struct kvw_trace_story *story = p->story;
	struct kvw_slice path;

	add_text(p->request, KVW_SLICE("http.request.method"), method_of(story, &path));
	add_text(p->request, KVW_SLICE("url.path"), path);
	add_name(p->request, KVW_SLICE("url.scheme"), p->facts->https ? "https" : "http");
	if (story->status > 0)
		add_int(p->request, KVW_SLICE("http.response.status_code"), story->status);
}

static void add_usage(struct pass *p)
{
	const struct kvw_trace_outcome *outcome = &p->story->outcome;

	if (operation_of(p->story->api) == NULL || p->first_token_us == 0)
		return;
	add_text(p->request, KVW_SLICE("gen_ai.response.model"),
		kvw_trace_story_text(p->story, p->story->model_word, p->story->model_len));
	if (outcome->prompt_known)
		add_int(p->request, KVW_SLICE("gen_ai.usage.input_tokens"), outcome->prompt);
	if (outcome->cached_known)
		add_int(p->request, KVW_SLICE("gen_ai.usage.cache_read.input_tokens"),
			outcome->cached);
	if (outcome->completion_known)
		add_int(p->request, KVW_SLICE("gen_ai.usage.output_tokens"), outcome->completion);
	if (!outcome->stream)
		return;
	add(p->request, (struct kvw_attribute){.key = KVW_SLICE("gen_ai.request.stream"),
				.type = KVW_ATTRIBUTE_BOOL,
				.number = 1});
	add(p->request,
		(struct kvw_attribute){.key = KVW_SLICE("gen_ai.response.time_to_first_chunk"),
			.type = KVW_ATTRIBUTE_DOUBLE,
			.real = (double)p->first_token_us / 1e6});
}

static void add_own(struct pass *p)
{
	static const char *const why[] = {[KVW_TRACE_EXPORT_NOT] = "",
		[KVW_TRACE_EXPORT_SAMPLED] = "sampled",
		[KVW_TRACE_EXPORT_SLOW] = "slow",
		[KVW_TRACE_EXPORT_FAILED] = "failed"};
	const struct kvw_trace_story *story = p->story;

	add_text(p->request, KVW_SLICE("kvway.request_id"),
		kvw_trace_story_text(story, story->id_word, story->id_len));
	add_name(p->request, KVW_SLICE("kvway.route"), kvw_api_name(story->api));
	add_name(p->request, KVW_SLICE("kvway.strategy"), story->outcome.strategy);
	add_name(p->request, KVW_SLICE("kvway.end"), kvw_end_name(story->end));
	add_name(p->request, KVW_SLICE("kvway.exported"), why[story->export]);
	if (story->skipped > 0)
		add_int(p->request, KVW_SLICE("kvway.notes_skipped"), story->skipped);
}

/* A status below 500 is the client's matter (HTTP conventions). */
static void judge(struct pass *p)
{
	const struct kvw_trace_story *story = p->story;

	if (!story->failed)
		return;
	(void)snprintf(p->out->status, sizeof(p->out->status), "%d", story->status);
	fail(p->request,
		story->end == KVW_END_COMPLETE || story->end == KVW_END_LOCAL
			? p->out->status
			: kvw_end_name(story->end),
		p->request->message);
}

void kvw_spans_make(struct kvw_spans *out, const struct kvw_span_facts *facts,
	const struct kvw_trace_story *story)
{
	struct pass p = {.out = out, .facts = facts, .story = story};

	out->trace[0] = story->context.trace[0];
	out->trace[1] = story->context.trace[1];
	out->flags = story->context.flags;
	out->count = out->event_count = 0;
	p.model = story->asked_len > 0
			  ? kvw_trace_story_text(story, story->asked_word, story->asked_len)
			  : kvw_trace_story_text(story, story->model_word, story->model_len);
	p.request = begin(&p, KVW_SPAN_SERVER, story->context.span, 0);
	p.request->parent = story->context.parent;
	describe(&p, p.request);
	for (size_t i = 0; i < story->note_count; i++)
		on_note(&p, &story->notes[i]);
	add_http(&p);
	add_usage(&p);
	add_own(&p);
	judge(&p);
	for (size_t i = 0; i < out->count; i++)
		if (out->spans[i].error != NULL)
			add_name(&out->spans[i], KVW_SLICE("error.type"), out->spans[i].error);
}
