/*
 * otlp.h - encodes spans as OTLP, the protocol of OpenTelemetry, for its transport over HTTP.
 *
 * Format: https://opentelemetry.io/docs/specs/otlp/ and the messages of opentelemetry-proto 1.x. A
 * request is made in two steps, so that spans can be encoded as they come: `spans` appends those of
 * one request of a client to a batch, `request` writes the whole message around a batch.
 *
 * Threads: pure functions.
 */
#ifndef KVW_OTEL_OTLP_H
#define KVW_OTEL_OTLP_H

#include "base/page.h"
#include "otel/settings.h"
#include "otel/span.h"

/* The program that sends the spans. */
struct kvw_otlp_sender {
	const struct kvw_otel_settings *settings;
	const char *instance; /* service.instance.id */
};

/* One encoding. */
struct kvw_otlp {
	const char *content_type;
	/* Appends all spans of the set. Memory that ran out is noted in the page. */
	void (*spans)(struct kvw_page *batch, const struct kvw_spans *spans);
	/* Writes the message with the spans of the batch. */
	void (*request)(struct kvw_page *out, const struct kvw_otlp_sender *sender,
		const struct kvw_page *batch);
	/* Returns how many spans the collector's answer to a request says that it has refused; 0
	 * also for an answer that cannot be read. */
	uint64_t (*rejected)(const char *answer, size_t len);
};

extern const struct kvw_otlp kvw_otlp_protobuf, kvw_otlp_json;

/* Returns the field `flags` of a span of the set. */
uint32_t kvw_otlp_flags(const struct kvw_spans *set, const struct kvw_span *span);

/* Calls `add` with each attribute of the resource, for both encodings. */
void kvw_otlp_resource(const struct kvw_otlp_sender *sender,
	void (*add)(void *arg, const struct kvw_attribute *attribute), void *arg);

#endif
