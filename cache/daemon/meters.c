/*
 * meters.c - renders the daemon's metrics; see meters.h.
 *
 * A line of daemon_metrics.def names a function here that writes the samples; a new counter is an
 * enumerator and a line.
 */
#include "daemon/meters.h"

#include <stddef.h>

#include "daemon/objects.h"

/* All values of one page of metrics, collected once. */
struct page {
	struct kvw_exposition *out;
	const struct kvt_daemon_metrics_input *in;
	struct kvt_objects_stats objects;
	struct kvt_segment_stats segment;
};

struct metric; /* a line of daemon_metrics.def */
typedef void collect_fn(const struct page *page, const struct metric *metric);

struct metric {
	struct kvw_metric_info info;
	collect_fn *collect;
	size_t arg;
};

static const char *const route_names[KVT_ROUTE_COUNT] = {
#define KVT_ROUTE(name, method, path, where, text) #name,
#include "daemon/routes.def"
	"other",
};

static const char *const status_names[KVT_SLOT_COUNT] = {
#define KVT_STATUS_NAME(code) #code,
	KVT_STATUSES(KVT_STATUS_NAME) "other",
};

static enum kvt_status_slot slot_of(int status)
{
	switch (status) {
#define KVT_STATUS_CASE(code)                                                                      \
	case code:                                                                                 \
		return KVT_SLOT_##code;
		KVT_STATUSES(KVT_STATUS_CASE)
	default:
		return KVT_SLOT_OTHER;
	}
}

void kvt_meter_answer(struct kvt_meters *m, enum kvt_route route, int status, int64_t ns)
{
	kvw_bump(&m->requests[route][slot_of(status)], 1);
	kvw_histogram_observe(&m->seconds[route], &m->bounds, ns);
}

/* --- one function for each kind of line in daemon_metrics.def
 * ----------------------------------- */

static uint64_t total(const struct page *page, enum kvt_count what)
{
	uint64_t sum = 0;

	for (size_t i = 0; i < page->in->meter_count; i++)
		sum += kvw_counted(&page->in->meters[i]->counts[what]);
	return sum;
}

#define COLLECT(name)                                                                              \
	static void collect_##name(const struct page *page, const struct metric *metric)

static void put(const struct page *page, uint64_t value)
{
	kvw_sample_u64(page->out, NULL, 0, value);
}

COLLECT(count)
{
	put(page, total(page, (enum kvt_count)metric->arg));
}

COLLECT(connections)
{
	(void)metric;
	put(page, page->in->connections);
}

COLLECT(puts)
{
	(void)metric;
	put(page, page->in->puts);
}

COLLECT(object)
{
	put(page, kvw_number_at(&page->objects, metric->arg));
}

COLLECT(object_seconds)
{
	kvw_sample_double(
		page->out, NULL, 0, (double)kvw_number_at(&page->objects, metric->arg) / 1e9);
}

COLLECT(segment)
{
	put(page, kvw_number_at(&page->segment, metric->arg));
}

COLLECT(quiet)
{
	int64_t until = page->objects.quiet_until_wall_ns;
	int64_t left = until == 0 ? 0 : until - page->in->wall_ns;

	(void)metric;
	kvw_sample_double(page->out, NULL, 0, left > 0 ? (double)left / 1e9 : 0.0);
}

COLLECT(outcomes)
{
	(void)metric;
	kvw_sample_named(page->out, "outcome", "stored", page->objects.stored);
	kvw_sample_named(page->out, "outcome", "replaced", page->objects.replaced);
	kvw_sample_named(page->out, "outcome", "same", page->objects.same);
}

COLLECT(refused)
{
	static const char *const reasons[] = {
		"connections", "descriptors", "puts", "quiet", "room", "quota", "size", "leases", "jobs", "error"};

	(void)metric;
	for (size_t i = 0; i < sizeof(reasons) / sizeof(reasons[0]); i++)
		kvw_sample_named(page->out, "reason", reasons[i],
			total(page, (enum kvt_count)(KVT_COUNT_REFUSED_CONNECTIONS + i)));
}

COLLECT(timeouts)
{
	static const char *const kinds[] = {"idle", "head", "body", "write"};

	(void)metric;
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		kvw_sample_named(page->out, "kind", kinds[i],
			total(page, (enum kvt_count)(KVT_COUNT_TIMEOUT_IDLE + i)));
}

/* Pairs of route and status that never occurred are left out. */
COLLECT(requests)
{
	(void)metric;
	for (int route = 0; route < KVT_ROUTE_COUNT; route++)
		for (int slot = 0; slot < KVT_SLOT_COUNT; slot++) {
			struct kvw_label labels[] = {
				{"route", kvw_slice_of(route_names[route])},
				{"code", kvw_slice_of(status_names[slot])},
			};
			uint64_t sum = 0;

			for (size_t i = 0; i < page->in->meter_count; i++)
				sum += kvw_counted(&page->in->meters[i]->requests[route][slot]);
			if (sum > 0)
				kvw_sample_u64(page->out, labels, 2, sum);
		}
}

COLLECT(seconds)
{
	(void)metric;
	for (int route = 0; route < KVT_ROUTE_COUNT; route++) {
		struct kvw_label label = {"route", kvw_slice_of(route_names[route])};
		struct kvw_histogram_sum sum = {0};

		for (size_t i = 0; i < page->in->meter_count; i++)
			kvw_histogram_collect(&page->in->meters[i]->seconds[route], &sum);
		kvw_sample_histogram(page->out, &label, 1, &page->in->meters[0]->bounds, &sum);
	}
}

/* --- the page --------------------------------------------------------------------------------- */

#define IN_OBJECTS(member) offsetof(struct kvt_objects_stats, member)
#define IN_SEGMENT(member) offsetof(struct kvt_segment_stats, member)

static const struct metric metrics[] = {
#define KVT_METRIC(name, type, labels, collector, arg, help)                                       \
	{{name, #type, labels, help}, collect_##collector, arg},
#define KVT_QUESTION(text) {{NULL, "", "", text}, NULL, 0},
#include "daemon/daemon_metrics.def"
};
#define METRICS (sizeof(metrics) / sizeof(metrics[0]))

void kvt_daemon_metrics(const struct kvt_daemon_metrics_input *in, struct kvw_exposition *out)
{
	struct page page = {.out = out, .in = in};

	kvt_objects_stats(in->objects, &page.objects);
	kvt_segment_stats(in->segment, &page.segment);
	for (size_t i = 0; i < METRICS; i++) {
		if (metrics[i].collect == NULL)
			continue; /* a question */
		kvw_metric_head(out, &metrics[i].info);
		metrics[i].collect(&page, &metrics[i]);
	}
}

static const struct kvw_metric_info *metric_at(size_t i)
{
	return i < METRICS ? &metrics[i].info : NULL;
}

void kvt_daemon_metrics_reference(FILE *out)
{
	kvw_metrics_page(out,
		"# Metrics of kvtierd\n\n"
		"Generated from `daemon_metrics.def` by `kvtierd reference --metrics`; a test "
		"compares.\n"
		"`/metrics` shows them in this order, then those of its cache "
		"(`cache/METRICS.md`).\n"
		"Each section is a question, and has the metrics that answer it.\n",
		metric_at);
}
