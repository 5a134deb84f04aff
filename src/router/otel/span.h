/*
 * span.h - the spans of a request, made from its record.
 *
 *	SERVER  the request: from its first byte to the last byte of its answer
 *	  INTERNAL  each wait before a worker was asked, by its reason
 *	  CLIENT    each attempt at a worker, each prefill leg
 *
 * Names and attributes are those of OpenTelemetry's semantic conventions: HTTP 1.41
 * (https://opentelemetry.io/docs/specs/semconv/http/http-spans/) and GenAI
 * (https://github.com/open-telemetry/semantic-conventions-genai); what these do not have is
 * `kvway.*`. README.md lists them.
 *
 * Threads: pure functions; the caller's thread may be any.
 */
#ifndef KVW_OTEL_SPAN_H
#define KVW_OTEL_SPAN_H

#include "kvway/slice.h"
#include "trace/trace.h"

/* The schema that the attributes follow. */
#define KVW_OTEL_SCHEMA "https://opentelemetry.io/schemas/1.41.0"

#define KVW_SPANS_MOST      (1 + KVW_TRACE_NOTES)
#define KVW_ATTRIBUTES_MOST 24
#define KVW_SPAN_NAME_MOST  (KVW_TRACE_MODEL_MOST + 24)
#define KVW_SPAN_URL_MOST   256 /* bytes of a worker's URL; a longer one is cut */

/* Numbers as OTLP has them. */
enum kvw_span_kind { KVW_SPAN_INTERNAL = 1, KVW_SPAN_SERVER = 2, KVW_SPAN_CLIENT = 3 };

enum kvw_attribute_type {
	KVW_ATTRIBUTE_TEXT,
	KVW_ATTRIBUTE_INT,
	KVW_ATTRIBUTE_DOUBLE,
	KVW_ATTRIBUTE_BOOL
};

struct kvw_attribute {
	struct kvw_slice key; /* static, or the settings' */
	enum kvw_attribute_type type;
	struct kvw_slice text; /* borrowed from the story or the set, or static */
	int64_t number;        /* also 0 or 1 */
	double real;
};

struct kvw_span_event {
	const struct kvw_span *span; /* to which it belongs */
	int64_t at_ns;               /* wall clock, like the times of spans */
	const char *name;            /* static */
	struct kvw_attribute attribute; /* key of len 0: none */
};

struct kvw_span {
	uint64_t id, parent; /* parent 0: none */
	enum kvw_span_kind kind;
	char name[KVW_SPAN_NAME_MOST + 1];
	int64_t begin_ns, end_ns;
	const char *error; /* kind of the error, static or of the set; NULL: it did not fail */
	struct kvw_slice message; /* of the error; may be empty */
	struct kvw_attribute attributes[KVW_ATTRIBUTES_MOST];
	size_t attribute_count;
};

/* All spans of one request. About 120 KiB: not for a stack. */
struct kvw_spans {
	uint64_t trace[2];
	uint8_t flags;
	struct kvw_span spans[KVW_SPANS_MOST];
	size_t count;
	struct kvw_span_event events[KVW_TRACE_NOTES];
	size_t event_count;
	char urls[KVW_SPANS_MOST][KVW_SPAN_URL_MOST]; /* of the worker of each span */
	char status[12]; /* as digits */
};

/* Sources of the spans besides a request's record. */
struct kvw_span_facts {
	const struct kvw_trace *trace; /* names the codes of notes */
	bool https;                    /* clients speak TLS */
	/* Copies the URL of a worker that a note names (kvw_trace_worker) to out[room]. Returns its
	 * length; 0: the worker has left. */
	size_t (*worker)(void *arg, uint32_t worker, char *out, size_t room);
	void *arg;
};

/* Fills *out with the spans of an ended request with a context. Texts are borrowed from the
 * story. */
void kvw_spans_make(struct kvw_spans *out, const struct kvw_span_facts *facts,
	const struct kvw_trace_story *story);

#endif
