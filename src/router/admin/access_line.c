/*
 * access_line.c - formats a line of the access log.
 *
 * Written by hand, not by printf: a line is some thirty fields, made on the event loop. Every
 * string has a share of the line that it cannot exceed, so the line has room for all of them
 * whatever a client sends; `static_assert` below adds the shares up.
 *
 * The formatter leaves out what is unknown (a count of 0 means that the worker reported 0).
 */
#include "admin/access_line.h"

#include <assert.h>
#include <string.h>
#include <time.h>

#include "openai/api_path.h"
#include "base/clock.h"
#include "base/page.h"
#include "trace/context.h"

/* Limits of bytes for each string after escaping. */
enum {
	ROOM_REQUEST_ID = 256,
	ROOM_CLIENT = 64,
	ROOM_KEY = 80,
	ROOM_TENANT = 80,
	ROOM_CERTIFICATE = 256,
	ROOM_METHOD = 32,
	ROOM_TARGET = 1472,
	ROOM_MODEL = 512,
	ROOM_WORKER = 384,
	ROOM_GROUP = 80,
	ROOM_TRACE = 64,
	/* Room for keys and numbers: 33 fields of at most 28 + 20 bytes, four of at most 32 + 20,
	 * three that end in words. */
	ROOM_REST = 1900,
};

static_assert(ROOM_REQUEST_ID + ROOM_CLIENT + ROOM_KEY + ROOM_TENANT + ROOM_CERTIFICATE +
			      ROOM_METHOD + ROOM_TARGET + ROOM_MODEL + 2 * ROOM_WORKER +
			      ROOM_GROUP + ROOM_TRACE + ROOM_REST <=
		      KVW_ACCESS_LINE_MAX,
	"a line has room for all its fields");

static char *put_text(char *at, const char *text, size_t len)
{
	memcpy(at, text, len);
	return at + len;
}

#define PUT(at, literal) put_text(at, literal, sizeof(literal) - 1)

static char *put_name(char *at, const char *text)
{
	return put_text(at, text, strlen(text));
}

static char *put_string(char *at, size_t room, struct kvw_slice value)
{
	at += kvw_json_escape(at, room, value);
	*at++ = '"';
	return at;
}

static char *put_u64(char *at, uint64_t value)
{
	return at + kvw_decimal(at, value);
}

/* Writes milliseconds with three decimals. */
static char *put_ms(char *at, int64_t ns)
{
	uint64_t us = ns < 0 ? 0 : (uint64_t)ns / 1000;

	at = put_u64(at, us / 1000);
	*at++ = '.';
	*at++ = (char)('0' + us / 100 % 10);
	*at++ = (char)('0' + us / 10 % 10);
	*at++ = (char)('0' + us % 10);
	return at;
}

static char *put_time(struct kvw_access_clock *clock, char *at, int64_t wall_ns)
{
	int64_t second = wall_ns / KVW_NS_PER_S;
	unsigned ms = (unsigned)(wall_ns % KVW_NS_PER_S / KVW_NS_PER_MS);

	if (second != clock->second || clock->text[0] == '\0') {
		time_t t = (time_t)second;
		struct tm utc;

		gmtime_r(&t, &utc);
		strftime(clock->text, sizeof(clock->text), "%Y-%m-%dT%H:%M:%S", &utc);
		clock->second = second;
	}
	at = put_name(at, clock->text);
	*at++ = '.';
	*at++ = (char)('0' + ms / 100 % 10);
	*at++ = (char)('0' + ms / 10 % 10);
	*at++ = (char)('0' + ms % 10);
	*at++ = 'Z';
	return at;
}

static char *put_knowledge(char *at, enum kvw_knowledge knowledge)
{
	const struct kvw_knowledge_text *text = kvw_knowledge_text(knowledge);

	if (text == NULL)
		return at;
	at = PUT(at, ",\"knowledge\":\"");
	at = put_name(at, text->name);
	*at++ = '"';
	return at;
}

/* Writes the fields of a forwarded request only: worker, reason, times and tokens. */
static char *put_forwarded(char *at, const struct kvw_request_record *r)
{
	at = PUT(at, ",\"worker\":\"");
	at = put_string(at, ROOM_WORKER, r->worker_url);
	at = PUT(at, ",\"reason\":\"");
	at = put_name(at, kvw_reason_name(r->reason));
	*at++ = '"';
	at = put_knowledge(at, r->knowledge);
	at = PUT(at, ",\"added_us\":");
	at = put_u64(at, r->added_ns < 0 ? 0 : (uint64_t)r->added_ns / 1000);
	if (r->prefiller_url.len > 0) {
		at = PUT(at, ",\"prefiller\":\"");
		at = put_string(at, ROOM_WORKER, r->prefiller_url);
		at = PUT(at, ",\"prefill_ms\":");
		at = put_ms(at, r->prefill_ns);
		at = PUT(at, ",\"prefill_prompt_tokens\":");
		at = put_u64(at, r->prefill_prompt);
		at = PUT(at, ",\"prefill_cached_tokens\":");
		at = put_u64(at, r->prefill_cached);
	}
	if (r->group.len > 0) {
		at = PUT(at, ",\"group\":\"");
		at = put_string(at, ROOM_GROUP, r->group);
	}
	if (r->predicted_prompt != 0) {
		at = PUT(at, ",\"predicted_prompt_tokens\":");
		at = put_u64(at, r->predicted_prompt);
		at = PUT(at, ",\"predicted_cached_tokens\":");
		at = put_u64(at, r->predicted_cached);
		if (r->predicted_fragments > 0) {
			at = PUT(at, ",\"predicted_fragment_tokens\":");
			at = put_u64(at, r->predicted_fragments);
		}
	}
	if (r->prompt_known) {
		at = PUT(at, ",\"prompt_tokens\":");
		at = put_u64(at, r->prompt_tokens);
	}
	if (r->cached_known) {
		at = PUT(at, ",\"cached_tokens\":");
		at = put_u64(at, r->cached_tokens);
	}
	if (r->completion_known) {
		at = PUT(at, ",\"completion_tokens\":");
		at = put_u64(at, r->completion_tokens);
	}
	if (r->estimated_prompt > 0) {
		at = PUT(at, ",\"estimated_prompt_tokens\":");
		at = put_u64(at, r->estimated_prompt);
	}
	if (r->estimated_completion > 0) {
		at = PUT(at, ",\"estimated_completion_tokens\":");
		at = put_u64(at, r->estimated_completion);
	}
	return at;
}

/* The id by which logs and traces of client, kvway and worker are found together. */
static char *put_trace(char *at, const struct kvw_trace_context *trace)
{
	at = PUT(at, ",\"trace_id\":\"");
	kvw_trace_id(at, trace);
	at += KVW_TRACE_ID_LEN;
	*at++ = '"';
	return at;
}

static char *put_request(char *at, const struct kvw_request_record *r)
{
	at = PUT(at, "\",\"request_id\":\"");
	at = put_string(at, ROOM_REQUEST_ID, r->request_id);
	if (r->trace != NULL)
		at = put_trace(at, r->trace);
	at = PUT(at, ",\"client\":\"");
	at = put_string(at, ROOM_CLIENT, r->client);
	if (r->key.len > 0) {
		at = PUT(at, ",\"key\":\"");
		at = put_string(at, ROOM_KEY, r->key);
	}
	if (r->tenant.len > 0) {
		at = PUT(at, ",\"tenant\":\"");
		at = put_string(at, ROOM_TENANT, r->tenant);
	}
	if (r->client_certificate.len > 0) {
		at = PUT(at, ",\"client_certificate\":\"");
		at = put_string(at, ROOM_CERTIFICATE, r->client_certificate);
	}
	at = PUT(at, ",\"method\":\"");
	at = put_string(at, ROOM_METHOD, r->method);
	at = PUT(at, ",\"path\":\"");
	at = put_string(at, ROOM_TARGET, r->target);
	at = PUT(at, ",\"route\":\"");
	at = put_name(at, kvw_api_name(r->api));
	*at++ = '"';
	if (r->model.len > 0) {
		at = PUT(at, ",\"model\":\"");
		at = put_string(at, ROOM_MODEL, r->model);
	}
	at = r->stream ? PUT(at, ",\"stream\":true") : PUT(at, ",\"stream\":false");
	return at;
}

size_t kvw_access_line(
	struct kvw_access_clock *clock, const struct kvw_request_record *r, char *out)
{
	char *at = PUT(out, "{\"ts\":\"");

	at = put_time(clock, at, r->wall_ns);
	at = put_request(at, r);
	at = PUT(at, ",\"status\":");
	at = put_u64(at, r->status < 0 ? 0 : (uint64_t)r->status);
	at = PUT(at, ",\"end\":\"");
	at = put_name(at, kvw_end_name(r->end));
	if (r->timeout != NULL) {
		at = PUT(at, "\",\"timeout\":\"");
		at = put_name(at, r->timeout);
	}
	if (r->waited_for != NULL) {
		at = PUT(at, "\",\"waited_for\":\"");
		at = put_name(at, r->waited_for);
		at = PUT(at, "\",\"waited_ms\":");
		at = put_ms(at, r->waited_ns);
		at = PUT(at, ",\"attempts\":");
	} else {
		at = PUT(at, "\",\"attempts\":");
	}
	at = put_u64(at, r->attempts);
	if (r->stale_retries != 0) {
		at = PUT(at, ",\"stale_retries\":");
		at = put_u64(at, r->stale_retries);
	}
	if (r->first_token_ns > 0) {
		at = PUT(at, ",\"ttft_ms\":");
		at = put_ms(at, r->first_token_ns);
	}
	at = PUT(at, ",\"total_ms\":");
	at = put_ms(at, r->total_ns);
	at = PUT(at, ",\"request_bytes\":");
	at = put_u64(at, r->request_bytes);
	at = PUT(at, ",\"response_bytes\":");
	at = put_u64(at, r->response_bytes);
	if (r->stream_chunks != 0) {
		at = PUT(at, ",\"stream_chunks\":");
		at = put_u64(at, r->stream_chunks);
	}
	if (r->worker_url.len > 0)
		at = put_forwarded(at, r);
	at = PUT(at, "}\n");
	assert(at - out <= KVW_ACCESS_LINE_MAX);
	return (size_t)(at - out);
}
