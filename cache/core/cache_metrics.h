/*
 * cache_metrics.h - a cache's counters as Prometheus text (exposition format 0.0.4).
 *
 * metrics.def has each metric once; cache/METRICS.md is made from it. Pure functions.
 */
#ifndef KVT_CACHE_METRICS_H
#define KVT_CACHE_METRICS_H

#include <stdio.h>

#include "chunk/tenants.h"
#include "lmcache/controller.h"
#include "events/event_log.h"
#include "kvtier/kvtier_fragments.h"
#include "core/latency.h"
#include "metrics/exposition.h"

/* Sources of the values. All borrowed, none NULL. */
struct kvt_metrics_input {
	const struct kvt_stats *stats;
	const struct kvt_event_log_stats *events;
	const struct kvt_controller_stats *controller;
	const struct kvt_fragments_stats *fragments;
	const struct kvt_latencies *latencies;
	/* one list per tier; NULL for a tier that cannot list tenants */
	const struct kvt_tenant_list *const *tenants;
	uint32_t tokens_per_chunk; /* converts counts of chunks into tokens */
};

/* *text: the caller frees it with free(). KVT_ENOMEM. */
enum kvt_status kvt_metrics_render(const struct kvt_metrics_input *in, char **text) KVT_MUST_CHECK;

/* Returns the i-th metric, or question, in the order of the text; NULL: i is past the last. */
const struct kvw_metric_info *kvt_metric_info(size_t i);

/* cache/METRICS.md. */
void kvt_metrics_reference(FILE *out);

#endif
