/*
 * settings.h - where spans go and which requests have some: the section `tracing` of the
 * configuration and, where its keys have their defaults, the variables of the OpenTelemetry SDKs.
 *
 * Variables: https://opentelemetry.io/docs/specs/otel/configuration/sdk-environment-variables/ and
 * https://opentelemetry.io/docs/specs/otel/protocol/exporter/. An unknown value of a variable is
 * logged as a warning, with what is expected, and does not count.
 *
 * Threads: made once at the start, then only read.
 */
#ifndef KVW_OTEL_SETTINGS_H
#define KVW_OTEL_SETTINGS_H

#include "config/config.h"
#include "kvway/err.h"
#include "trace/trace.h"

#define KVW_OTEL_PAIRS_MOST 64 /* most header fields, and most attributes of the resource */

/* NAME=VALUE of a list; both owned. */
struct kvw_otel_pair {
	char *name, *value;
};

/* Zeroed: no spans are exported. */
struct kvw_otel_settings {
	char *endpoint;     /* owned; the whole URL; NULL: no spans are exported */
	char *ca_file;      /* owned; NULL: the system's authorities */
	char *service_name; /* owned */
	enum kvw_otlp_protocol protocol;
	enum kvw_otlp_compression compression;
	int64_t timeout_ms;  /* of a message */
	int64_t interval_ms; /* for which spans wait for others */
	uint64_t buffer; /* bytes */
	struct kvw_otel_pair headers[KVW_OTEL_PAIRS_MOST], resource[KVW_OTEL_PAIRS_MOST];
	size_t header_count, resource_count;
	struct kvw_trace_sampling sampling; /* for the trace room; off without an endpoint */
};

/* Returns the value of a variable; NULL: it is not set. */
typedef const char *kvw_otel_getenv_fn(const char *name);

/* Makes the settings. loops: among which the limit of slow and failed requests is divided.
 * KVW_ENOMEM. */
enum kvw_err kvw_otel_settings_make(const struct kvw_config *config, size_t loops,
	kvw_otel_getenv_fn *variable, struct kvw_otel_settings *out) KVW_MUST_CHECK;
void kvw_otel_settings_finish(struct kvw_otel_settings *settings);

/* Reads "NAME=VALUE,NAME=VALUE", whose values may be percent-encoded, and adds the pairs to
 * pairs[KVW_OTEL_PAIRS_MOST]. KVW_EINVAL: a part is none, or there are too many; those before it
 * were added. KVW_ENOMEM. */
enum kvw_err kvw_otel_pairs_read(
	const char *text, struct kvw_otel_pair *pairs, size_t *count) KVW_MUST_CHECK;

#endif
