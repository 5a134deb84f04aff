/*
 * history.h - the sums of /metrics every 30 seconds of the last hour, from which traffic is drawn
 * and "in the last 5 minutes" is counted. Threads: the control thread. Memory: 160 KiB.
 */
#ifndef KVW_STATUS_HISTORY_H
#define KVW_STATUS_HISTORY_H

#include <jansson.h>

#include "admin/metrics_totals.h"
#include "base/clock.h"
#include "fleet/fleet.h"

#define KVW_HISTORY_STEP_NS (30 * KVW_NS_PER_S)
#define KVW_HISTORY_STEPS   120

#define KVW_MOVED_STEPS     6
#define KVW_MOVED_STEP_NS   (60 * KVW_NS_PER_S)

/* A worker's transfers and recomputed (worker.h). */
struct kvw_moved {
	uint64_t transfers, recomputed;
};

/* Zeroed: there is no sample yet. */
struct kvw_history {
	struct kvw_history_sample {
		int64_t at_ns;
		struct kvw_metrics_totals totals;
		uint64_t waiting_most; /* most that waited since the sample before */
	} samples[KVW_HISTORY_STEPS + 1];
	size_t newest, count;
	uint64_t waiting_most; /* since the newest sample */
	/* By slot, a minute apart, the newest first: the oldest is 5 to 6 minutes old. */
	struct kvw_moved moved[KVW_MOVED_STEPS][KVW_MAX_WORKERS];
	int64_t moved_ns; /* when the newest was noted */
};

/* Takes a sample if the newest is a step old. Called about once a second. */
void kvw_history_tick(
	struct kvw_history *history, const struct kvw_metrics *metrics, int64_t now_ns);
/* Notes the transfers of each worker once a minute. Called about once a second. */
void kvw_history_note_moved(
	struct kvw_history *history, const struct kvw_fleet *fleet, int64_t now_ns);
/* Returns what was transferred to the worker in the last 5 minutes. */
struct kvw_moved kvw_history_moved(
	const struct kvw_history *history, const struct kvw_worker *worker);
/* Returns the newest sample that is at least so old; the oldest where none is. There must be a
 * sample. */
const struct kvw_history_sample *kvw_history_before(
	const struct kvw_history *history, int64_t age_ns, int64_t now_ns);
/* Returns by how much a sum has grown between two totals. 0: it has fallen. */
uint64_t kvw_history_grown(const struct kvw_metrics_totals *from,
	const struct kvw_metrics_totals *to, enum kvw_total total);
/* Returns arrays of what each step brought, oldest first, and of the time since the newest sample
 * as the last element. NULL: out of memory. */
json_t *kvw_history_json(const struct kvw_history *history, const struct kvw_metrics *metrics,
	const struct kvw_metrics_totals *now, int64_t now_ns);

#endif
