/*
 * meters.h - counts the requests of one loop of the server, and how long they took.
 *
 * Each loop owns one struct kvt_meters and is its only writer; the loop that answers /metrics reads
 * all of them. The counters are relaxed atomics, and writing needs no locked instruction.
 */
#ifndef KVT_METERS_H
#define KVT_METERS_H

#include <stdint.h>
#include <stdio.h>

#include "core/latency.h"
#include "metrics/exposition.h"

enum kvt_route {
#define KVT_ROUTE(name, method, path, where, text) KVT_ROUTE_##name,
#include "daemon/routes.def"
	KVT_ROUTE_other, /* requests refused before their route was known */
	KVT_ROUTE_COUNT
};

/* Statuses with a counter of their own; all others share one. */
#define KVT_STATUSES(X)                                                                            \
	X(200)                                                                                     \
	X(400) X(403) X(404) X(405) X(408) X(409) X(411) X(413) X(501) X(503) X(504) X(507)
enum kvt_status_slot {
#define KVT_STATUS_SLOT(code) KVT_SLOT_##code,
	KVT_STATUSES(KVT_STATUS_SLOT)
#undef KVT_STATUS_SLOT
		KVT_SLOT_OTHER,
	KVT_SLOT_COUNT
};

/* Counters for kvt_meter_add(): one for each KVT_COUNTER of daemon_metrics.def, the reasons of
 * kvtierd_refused_total and the kinds of kvtierd_timeouts_total, in the order of their labels. */
enum kvt_count {
#define KVT_METRIC(name, type, labels, collector, arg, help)
#define KVT_COUNTER(name, id, help) KVT_COUNT_##id,
#include "daemon/daemon_metrics.def"
	KVT_COUNT_REFUSED_CONNECTIONS,
	KVT_COUNT_REFUSED_DESCRIPTORS,
	KVT_COUNT_REFUSED_PUTS,
	KVT_COUNT_REFUSED_QUIET,
	KVT_COUNT_REFUSED_ROOM,
	KVT_COUNT_REFUSED_QUOTA,
	KVT_COUNT_REFUSED_SIZE,
	KVT_COUNT_REFUSED_LEASES,
	KVT_COUNT_REFUSED_JOBS,
	KVT_COUNT_REFUSED_ERROR,
	KVT_COUNT_TIMEOUT_IDLE,
	KVT_COUNT_TIMEOUT_HEAD,
	KVT_COUNT_TIMEOUT_BODY,
	KVT_COUNT_TIMEOUT_WRITE,
	KVT_COUNT_COUNT
};

struct kvt_meters {
	_Alignas(64) _Atomic uint64_t requests[KVT_ROUTE_COUNT][KVT_SLOT_COUNT];
	_Atomic uint64_t counts[KVT_COUNT_COUNT];
	struct kvw_histogram seconds[KVT_ROUTE_COUNT];
	struct kvw_bounds bounds; /* bounds in seconds */
};

/* m is zeroed. */
static inline void kvt_meters_init(struct kvt_meters *m)
{
	kvt_latency_bounds_init(&m->bounds);
}

static inline void kvt_meter_add(struct kvt_meters *m, enum kvt_count what, uint64_t n)
{
	kvw_bump(&m->counts[what], n);
}

/* Counts one answer by route and status, and its time since the request's head was complete. */
void kvt_meter_answer(struct kvt_meters *m, enum kvt_route route, int status, int64_t ns);

/* The parts whose values the page shows. All borrowed. */
struct kvt_objects;
struct kvt_segment_file;
struct kvt_daemon_metrics_input {
	const struct kvt_meters *const *meters; /* [meter_count] */
	size_t meter_count;
	uint64_t connections, puts; /* now */
	int64_t wall_ns;
	struct kvt_objects *objects;
	struct kvt_segment_file *segment;
};
/* Appends the daemon's metrics in Prometheus' text format. */
void kvt_daemon_metrics(const struct kvt_daemon_metrics_input *in, struct kvw_exposition *out);

/* METRICS.md */
void kvt_daemon_metrics_reference(FILE *out);

#endif
