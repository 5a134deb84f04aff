/*
 * metrics_totals.h - sums over all workers, models and routes, for src/router/status: what /metrics
 * shows by labels, as one number each. Workers that have left are counted, too: a sum that fell
 * with them would hide for minutes what the others do.
 */
#ifndef KVW_METRICS_TOTALS_H
#define KVW_METRICS_TOTALS_H

#include "admin/metrics.h"
#include "metrics/histogram.h"

/* Which sum. Counters since the start, those of workers that have left included. */
enum kvw_total {
	/* kvway_requests_total without kvway's own pages, by how the requests ended */
	KVW_TOTAL_OK,
	KVW_TOTAL_CLIENT_ERROR, /* 4xx but 429 */
	KVW_TOTAL_REFUSED,      /* 429 */
	KVW_TOTAL_FAILED,       /* 5xx, a timeout, a worker lost */
	KVW_TOTAL_LEFT,         /* the client left */
	/* tokens */
	KVW_TOTAL_PROMPT, /* of answers that say how many were cached */
	KVW_TOTAL_CACHED,
	KVW_TOTAL_COMPLETION,
	KVW_TOTAL_PREDICTED_PROMPT,
	KVW_TOTAL_PREDICTED_CACHED,
	KVW_TOTAL_PREFILLED, /* prompts that another worker prefilled */
	/* promises */
	KVW_TOTAL_KEPT,
	KVW_TOTAL_LATE,
	KVW_TOTAL_SLOW,
	KVW_TOTAL_BROKEN, /* failed or refused */
	/* refusals by reason */
	KVW_TOTAL_SERVICE_LEVEL,
	KVW_TOTAL_DEADLINE,
	KVW_TOTAL_QUEUE_FULL,
	KVW_TOTAL_RATE,        /* a limit of a key, tenant or model */
	KVW_TOTAL_KEY,         /* auth */
	KVW_TOTAL_BODY_MEMORY, /* limits.body_memory */
	KVW_TOTAL_CONNECTIONS, /* limits.connections */
	KVW_TOTAL_ENGINE_FULL, /* workers that were full */
	/* others */
	KVW_TOTAL_RETRIES,
	KVW_TOTAL_DESCRIPTORS,
	KVW_TOTAL_COUNT
};

/* The first of them: how requests ended. */
#define KVW_TOTAL_FATES (KVW_TOTAL_LEFT + 1)

struct kvw_metrics_totals {
	uint64_t counts[KVW_TOTAL_COUNT];
	struct kvw_histogram_sum first_token; /* over all routes */
	/* as they are now */
	uint64_t waiting, exchanges;
	double oldest_s; /* how long the oldest of those that wait has waited */
};

/* Keeps the requests of a worker that leaves, before kvw_metrics_forget. Control thread. */
void kvw_metrics_totals_keep(struct kvw_metrics *metrics, uint32_t worker_id);
/* Fills *out. Any thread. */
void kvw_metrics_totals(
	const struct kvw_metrics *metrics, int64_t now_ns, struct kvw_metrics_totals *out);
/* Returns the name of a sum in JSON, for example "ok". */
const char *kvw_total_name(enum kvw_total total);
/* Returns the `share` (0 to 1) of the times to first token that are between two totals, in
 * seconds, as histogram_quantile of Prometheus; -1: there are none. */
double kvw_totals_first_token(const struct kvw_metrics *metrics,
	const struct kvw_metrics_totals *from, const struct kvw_metrics_totals *to, double share);

#endif
