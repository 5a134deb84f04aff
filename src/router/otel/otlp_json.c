/*
 * otlp_json.c - OTLP as JSON: Protocol Buffers' own mapping, with ids in hexadecimal digits, enums
 * as numbers, and integers of 64 bits as texts (OTLP 1.x, "JSON Protobuf Encoding").
 */
#include <jansson.h>
#include <string.h>

#include "otel/otlp.h"

/* Writes a number of 64 bits. */
static void put_big(struct kvw_page *out, const char *name, int64_t value)
{
	kvw_page_member(out, name);
	kvw_page_string(out, "\"");
	kvw_page_i64(out, value);
	kvw_page_string(out, "\"");
}

static void put_text(struct kvw_page *out, const char *name, struct kvw_slice value)
{
	kvw_page_member(out, name);
	kvw_page_json(out, value);
}

static void put_id(struct kvw_page *out, const char *name, const uint64_t *words, size_t count)
{
	char digits[KVW_TRACE_ID_LEN];

	for (size_t i = 0; i < count; i++)
		kvw_trace_hex(digits + 16 * i, words[i]);
	put_text(out, name, (struct kvw_slice){digits, 16 * count});
}

/* Writes a KeyValue. */
static void put_attribute(struct kvw_page *out, const struct kvw_attribute *attribute)
{
	kvw_page_string(out, "{");
	put_text(out, "key", attribute->key);
	kvw_page_member(out, "value");
	kvw_page_string(out, "{");
	switch (attribute->type) {
	case KVW_ATTRIBUTE_TEXT:
		put_text(out, "stringValue", attribute->text);
		break;
	case KVW_ATTRIBUTE_BOOL:
		kvw_page_member(out, "boolValue");
		kvw_page_string(out, attribute->number != 0 ? "true" : "false");
		break;
	case KVW_ATTRIBUTE_INT:
		put_big(out, "intValue", attribute->number);
		break;
	case KVW_ATTRIBUTE_DOUBLE:
		kvw_page_member(out, "doubleValue");
		kvw_page_double(out, attribute->real);
		break;
	}
	kvw_page_string(out, "}}");
}

static void put_attributes(
	struct kvw_page *out, const struct kvw_attribute *attributes, size_t count)
{
	kvw_page_member(out, "attributes");
	kvw_page_string(out, "[");
	for (size_t i = 0; i < count; i++) {
		if (i > 0)
			kvw_page_string(out, ",");
		put_attribute(out, &attributes[i]);
	}
	kvw_page_string(out, "]");
}

static void put_events(
	struct kvw_page *out, const struct kvw_spans *set, const struct kvw_span *span)
{
	bool first = true;

	kvw_page_member(out, "events");
	kvw_page_string(out, "[");
	for (size_t i = 0; i < set->event_count; i++) {
		const struct kvw_span_event *event = &set->events[i];

		if (event->span != span)
			continue;
		kvw_page_string(out, first ? "{" : ",{");
		first = false;
		put_big(out, "timeUnixNano", event->at_ns);
		put_text(out, "name", kvw_slice_of(event->name));
		put_attributes(out, &event->attribute, event->attribute.key.len > 0);
		kvw_page_string(out, "}");
	}
	kvw_page_string(out, "]");
}

static void put_span(struct kvw_page *out, const struct kvw_spans *set, const struct kvw_span *span)
{
	kvw_page_string(out, "{");
	put_id(out, "traceId", set->trace, 2);
	put_id(out, "spanId", &span->id, 1);
	if (span->parent != 0)
		put_id(out, "parentSpanId", &span->parent, 1);
	put_text(out, "name", kvw_slice_of(span->name));
	kvw_page_member(out, "kind");
	kvw_page_u64(out, span->kind);
	put_big(out, "startTimeUnixNano", span->begin_ns);
	put_big(out, "endTimeUnixNano", span->end_ns);
	put_attributes(out, span->attributes, span->attribute_count);
	put_events(out, set, span);
	if (span->error != NULL) {
		kvw_page_member(out, "status");
		kvw_page_string(out, "{\"code\":2");
		put_text(out, "message", span->message);
		kvw_page_string(out, "}");
	}
	kvw_page_member(out, "flags");
	kvw_page_u64(out, kvw_otlp_flags(set, span));
	kvw_page_string(out, "}");
}

static void put_spans(struct kvw_page *batch, const struct kvw_spans *set)
{
	for (size_t i = 0; i < set->count; i++) {
		if (batch->len > 0)
			kvw_page_string(batch, ",");
		put_span(batch, set, &set->spans[i]);
	}
}

static void put_resource_attribute(void *arg, const struct kvw_attribute *attribute)
{
	struct kvw_page *out = arg;

	if (out->data != NULL && out->data[out->len - 1] == '}')
		kvw_page_string(out, ",");
	put_attribute(out, attribute);
}

static void put_request(
	struct kvw_page *out, const struct kvw_otlp_sender *sender, const struct kvw_page *batch)
{
	kvw_page_string(out, "{\"resourceSpans\":[{\"resource\":{\"attributes\":[");
	kvw_otlp_resource(sender, put_resource_attribute, out);
	kvw_page_string(out,
		"]},\"scopeSpans\":[{\"scope\":{\"name\":\"kvway\",\"version\":\"" KVW_VERSION
		"\"},\"spans\":[");
	kvw_page_put(out, batch->data, batch->len);
	kvw_page_string(out, "],\"schemaUrl\":\"" KVW_OTEL_SCHEMA
			     "\"}],\"schemaUrl\":\"" KVW_OTEL_SCHEMA "\"}]}");
}

static uint64_t read_rejected(const char *answer, size_t len)
{
	json_t *root = json_loadb(answer, len, 0, NULL);
	const json_t *count =
		json_object_get(json_object_get(root, "partialSuccess"), "rejectedSpans");
	long long rejected = json_is_string(count) ? strtoll(json_string_value(count), NULL, 10)
						   : json_integer_value(count);

	json_decref(root);
	return rejected > 0 ? (uint64_t)rejected : 0;
}

const struct kvw_otlp kvw_otlp_json = {
	.content_type = "Content-Type: application/json",
	.spans = put_spans,
	.request = put_request,
	.rejected = read_rejected,
};
