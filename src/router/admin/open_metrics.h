/*
 * open_metrics.h - /metrics as OpenMetrics, with exemplars: traces of requests that a bucket of a
 * histogram counts. Private to src/router/admin.
 *
 * Format: https://prometheus.io/docs/specs/om/open_metrics_spec/ (1.0.0).
 */
#ifndef KVW_OPEN_METRICS_H
#define KVW_OPEN_METRICS_H

#include "http/head.h"
#include "metrics/exposition.h"
#include "kvway/route_request.h"

#define KVW_OPEN_METRICS_TYPE "application/openmetrics-text; version=1.0.0; charset=utf-8"

/* Histograms of a route that have exemplars. */
enum kvw_exemplar_of { KVW_EXEMPLAR_TOTAL, KVW_EXEMPLAR_FIRST_TOKEN, KVW_EXEMPLARS };

/* The last exported request of each bucket. Zeroed: none. */
struct kvw_exemplar_table {
	struct kvw_exemplar of[KVW_API_COUNT][KVW_EXEMPLARS][KVW_BOUNDS_MAX + 1];
};

/* Returns whether a request for /metrics prefers OpenMetrics 1.0.0 to text 0.0.4 (RFC 9110 section
 * 12.5.1). */
bool kvw_open_metrics_wanted(const struct kvw_head *head);

#endif
